"""The node's firewall: one nftables table, `inet llmgw`. Decided in `ruleset` and `plan`, carried out in `apply`."""
