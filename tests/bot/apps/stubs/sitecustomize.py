"""Put a stand-in where `bot.runtime` and `bot.demo` are, in every process that has this folder on its path."""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

STAND_INS = {"bot.runtime": "stub_runtime.py", "bot.demo": "stub_demo.py"}


class StandIns(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname not in STAND_INS:
            return None
        return importlib.util.spec_from_file_location(fullname, Path(__file__).with_name(STAND_INS[fullname]))


sys.meta_path.insert(0, StandIns())
