"""What `make constraints` runs: resolves the dependencies and writes the constraints files, with hashes.

Versions in the files stay as long as pyproject.toml allows them; --upgrade takes the newest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("constraints")
UV = "uv==0.13.7"
PYTHON = "3.11"  # the oldest that is supported: what is resolved for it is used on later ones, too
SPARK_PACKAGES = ("pyspark", "py4j")
SPARK = {
    # Delta allows no later version (delta-spark 4.4.1), and Spark's Kafka connector is not released for one.
    "spark42.txt": "pyspark==4.2.0",
    "spark43.txt": "pyspark>=4.3,<4.4",
}
BUILD = (
    "editables>=0.5,<1",  # hatchling asks for it when it builds an editable package
    "setuptools>=70.1",  # builds PySpark, which comes as source; since 70.1 it does so alone
)


class Resolver:
    """Runs uv, which knows the hashes of all files of a version and resolves for several Pythons at once."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", UV], check=True)
        self._command = [
            *(str(folder / "bin" / "uv"), "pip", "compile", "--quiet", "--generate-hashes"),
            *("--universal", "--python-version", PYTHON, "--fork-strategy", "fewest"),
            *("--custom-compile-command", "make constraints", *options),
        ]

    def write(
        self, name: str, requirements: list[str], *, beside: list[str], without: tuple[str, ...] = ()
    ) -> None:
        """Write what the requirements need, in the versions of the files beside it, without some packages."""
        path = FOLDER / name
        command = [*self._command, "-", "--no-annotate", "--output-file", str(path)]
        for other in beside:
            command += ["--constraint", str(FOLDER / other)]
        for package in without:
            command += ["--no-emit-package", package]
        subprocess.run(command, cwd=ROOT, input="\n".join(requirements), text=True, check=True)
        if "://" in (ROOT / path).read_text(encoding="utf-8"):
            raise SystemExit(f"{path} names an address: it must hold for every index.")


def main() -> None:
    """Write development's file first: the others keep to its versions."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    extras = project["optional-dependencies"]
    with tempfile.TemporaryDirectory() as folder:
        resolver = Resolver(Path(folder), sys.argv[1:])
        development = [*project["dependencies"], *extras["dev"]]
        pinned = [*development, SPARK["spark42.txt"]]
        resolver.write("dev.txt", pinned, beside=[], without=SPARK_PACKAGES)
        for name, requirement in SPARK.items():
            resolver.write(name, [requirement], beside=["dev.txt"])
        resolver.write("bench.txt", extras["bench"], beside=["dev.txt", "spark42.txt"])
        resolver.write("build.txt", [*settings["build-system"]["requires"], *BUILD], beside=["dev.txt"])


if __name__ == "__main__":
    main()
