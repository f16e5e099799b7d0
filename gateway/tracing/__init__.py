"""Traces: what each request did and when, as spans for a collector of OTLP; only where the config names one."""
