"""Read the tensors of a file written by torch.save, without PyTorch and without running what is in it.

Such a file is a zip archive: one pickle, `data.pkl`, and the bytes of every tensor in a record of its own. A
pickle may name any function of any module to be called. Here these names are known and all others refused:

    collections.OrderedDict             a state dict
    torch._utils._rebuild_tensor_v2     a tensor: storage, offset, size, strides
    torch._utils._rebuild_parameter     a tensor that was a parameter
    torch.Size                          a shape
    torch.FloatStorage, ...             the dtype of a storage
"""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

STORAGES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


def load_torch_file(path: Path) -> Any:
    """Return what was saved, with every tensor as a read-only array."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a zip archive, as torch.save has written since PyTorch 1.6")
    with zipfile.ZipFile(path) as archive:
        for record in archive.infolist():
            if record.compress_type != zipfile.ZIP_STORED:  # torch.save never compresses
                raise ValueError(f"{path}: {record.filename} is compressed")
        pickles = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
        if len(pickles) != 1:
            raise ValueError(f"{path} has {len(pickles)} records */data.pkl; a file of torch.save has one")
        with archive.open(pickles[0]) as stream:
            return TensorUnpickler(stream, archive, pickles[0].removesuffix("data.pkl")).load()


class TensorUnpickler(pickle.Unpickler):
    """Unpickles containers, numbers, strings and tensors only."""

    def __init__(self, stream: Any, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(stream)
        self.archive, self.folder = archive, folder
        self.byte_order: Literal["<", ">"] = "<"
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") == b"big":
            self.byte_order = ">"
        self.storages: dict[str, Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "collections", "OrderedDict":
                return OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return self.rebuild_tensor
            case "torch._utils", "_rebuild_parameter":
                return self.rebuild_parameter
            case "torch", "Size":
                return tuple
            case "torch", _ if name in STORAGES:
                return name
        raise pickle.UnpicklingError(f"{module}.{name} is not a tensor or a container of tensors: refused")

    def persistent_load(self, pid: Any) -> Array:
        """Return a storage, flat: pid is ("storage", its type, its record, where it was, its size)."""
        match pid:
            case ("storage", str(kind), str(key), str(), int(size)) if kind in STORAGES:
                if key not in self.storages:
                    dtype = np.dtype(STORAGES[kind]).newbyteorder(self.byte_order)
                    self.storages[key] = np.frombuffer(self.archive.read(f"{self.folder}data/{key}"), dtype)
                if self.storages[key].size == size:
                    return self.storages[key]
        raise pickle.UnpicklingError(f"{pid!r} is not a storage of this file")

    def rebuild_tensor(
        self, storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
    ) -> Array:
        """View a storage as a tensor; what follows the strides concerns gradients."""
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if any(n < 0 for n in (offset, *size, *stride)) or (0 not in size and last >= storage.size):
            raise pickle.UnpicklingError(f"a tensor of size {size}, strides {stride} leaves its storage")
        strides = [step * storage.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(storage[offset:], size, strides, writeable=False)

    def rebuild_parameter(self, tensor: Array, *_: Any) -> Array:
        return tensor
