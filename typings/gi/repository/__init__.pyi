from . import Gio as Gio
from . import GLib as GLib
