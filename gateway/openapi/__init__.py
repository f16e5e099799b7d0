"""The gateway's routes as an OpenAPI 3.1 document: a table of operations, schemas, and what is made of them."""
