"""One file per engine; `engines.registry` lists them."""
