"""Why a flag is refused: the ends of sentences, shared by the tables. Pure."""

OURS = "llmgw sets it itself"
CARDS = "llmgw decides which cards and nodes a runtime gets"
READS = "it makes the engine read a file of its choice"
WRITES = "it makes the engine write to a path of its choice"
NETWORK = "it makes the engine fetch from the network, or talk to other addresses"
EXITS = "it prints something and ends, so the runtime would never serve"
CODE = "it makes the engine load and run code of its choice"
ROUTES = "it moves or opens routes that llmgw relies on"
ANOTHER_SERVER = "it puts another server in the place of the one whose keys, routes and metrics llmgw relies on"
UNTRUSTED = "it lets requests bring data that the engine would run or trust"
SECRET = "an argument is readable for every user of the machine"


def group(reason: str, flags: str) -> dict[str, str]:
    """Each of the flags, separated by spaces, with the reason."""
    return dict.fromkeys(flags.split(), reason)
