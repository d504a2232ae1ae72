"""The exporters that are compared: how each is called, and the environment of the two peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PEER_PACKAGES = (
    "torch==2.13.0",
    "onnxruntime-genai==0.18.0",
    "mobius-onnx==0.1.0",
    "transformers==5.24.0",
)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One exporter.

    command: with {model} and {output} to fill in. what: what it writes, for the tables.
    """

    name: str
    what: str
    command: tuple[str, ...]

    def fill(self, model: Path, output: Path) -> list[str]:
        """The command for one run."""
        places = {"{model}": str(model), "{output}": str(output)}
        return [places.get(part, part) for part in self.command]


def assay_tool(precision: str, *options: str) -> Tool:
    """This checkout's own exporter, loading and verification off."""
    command = [sys.executable, "-m", "assay", "export", "-m", "{model}", "-o", "{output}"]
    command += ["-p", precision, "-e", "cpu", *options, "--no-load", "--no-verify", "--json"]
    return Tool(name="assay", what=" ".join((precision, *options)), command=tuple(command))


def builder_tool(peers_python: str, cache: Path) -> Tool:
    """onnxruntime-genai's model builder with its own defaults.

    Version 0.18: block size 32, symmetric round-to-nearest, accuracy level 4, head int4; a tied
    embedding shares the head's int4 tensor.
    """
    command = [peers_python, "-m", "onnxruntime_genai.models.builder", "-m", "{model}"]
    command += ["-o", "{output}", "-p", "int4", "-e", "cpu", "-c", str(cache)]
    return Tool(name="genai builder", what="int4 (its defaults)", command=tuple(command))


def mobius_tool(peers_python: str) -> Tool:
    """mobius, which writes float models only."""
    command = [str(Path(peers_python).with_name("mobius")), "build", "--config", "{model}"]
    command += ["--dtype", "f32", "--ep", "cpu", "--runtime", "ort-genai", "{output}"]
    return Tool(name="mobius", what="fp32", command=tuple(command))


def make_environment() -> dict[str, str]:
    """This checkout's assay before any installed one; nobody asks the hub."""
    env = dict(os.environ)
    paths = [str(REPOSITORY / "src"), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}


def find_peers_python(given: str | None) -> str:
    """The interpreter that has the peers: the given one, or .venv-peers, made on first use."""
    if given:
        return given
    folder = REPOSITORY / ".venv-peers"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (folder / "complete").is_file():
        print(f"Installing the peers into {folder} (once): {', '.join(PEER_PACKAGES)}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEER_PACKAGES], check=True)
        (folder / "complete").write_text("\n".join(PEER_PACKAGES) + "\n", encoding="utf-8")
    return str(python)


def read_versions(python: str) -> dict[str, str]:
    """The versions of what matters in an environment."""
    script = (
        "import json, platform\nfrom importlib import metadata\n"
        "names = ['onnxruntime-genai', 'onnxruntime', 'mobius-onnx', 'torch', 'transformers',"
        " 'numpy', 'numba', 'onnx_ir']\n"
        "have = {d.metadata['Name'].replace('-', '_').lower(): d.version"
        " for d in metadata.distributions()}\n"
        "found = {n: have.get(n.replace('-', '_').lower()) for n in names}\n"
        "print(json.dumps({'python': platform.python_version()}"
        " | {n: v for n, v in found.items() if v}))\n"
    )
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def read_commit() -> str:
    """The commit that is measured, marked where the tree differs from it."""
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
