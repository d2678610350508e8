"""Modules of the binder import each other, and each can be imported first, as extensions do."""

from __future__ import annotations

import subprocess
import sys

IMPORT_EACH = """
import sys
from importlib import import_module
from pkgutil import walk_packages
import slicemill.binder
names = [found.name for found in walk_packages(slicemill.binder.__path__, "slicemill.binder.")]
assert len(names) > 30
for name in names:
    for known in [module for module in sys.modules if module.startswith("slicemill.binder")]:
        del sys.modules[known]
    import_module(name)
from slicemill.binder import BoundScript, Catalog, bind_script
"""


def test_each_module_of_the_binder_can_be_imported_first() -> None:
    subprocess.run([sys.executable, "-c", IMPORT_EACH], check=True, timeout=300)
