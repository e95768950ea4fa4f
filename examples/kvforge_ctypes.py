"""kernels/c_api.h for Python: declarations for ctypes and thin handles.

    library = load()                                  # libkvforge.so
    engine = Engine(library, gpu="sm_90")             # or target=TARGET_CUDA
    kernel = engine.prepare("store/e4m3_row/d128/g1/page16/bf16")
    kernel.run(StoreArgs(...), stream)

Structs have their struct_size set. Pointer fields take addresses: data_ptr() of
a torch tensor, ctypes.data of a NumPy array, or None. Memory that they point to
is the caller's and must outlive the work on the stream. Fields, units, errors
and threading are documented in c_api.h. Needs nothing but the standard library;
tests/kernels/check_ctypes.py compares every line with the header.
"""
import ctypes
import os
import pathlib
from ctypes import (POINTER, byref, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

ABI = 1

OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED = 0, 3, 5, 12
TARGET_HOST, TARGET_CUDA = 0, 1
NO_BYTE_CAP = -1
SCORE_DIGEST_BYTES = 33
ORDER_NHD, ORDER_HND = 0, 1
SIDE_K, SIDE_V = 0, 1
PLANE_CODES, PLANE_ROW_SCALES, PLANE_BLOCK_SCALES = 0, 1, 2
MAX_DECODE_BLOCKS = 65536


class Sized(ctypes.Structure):
    """A struct that begins with struct_size."""

    def __init__(self, **fields):
        super().__init__(ctypes.sizeof(type(self)))
        for name, value in fields.items():
            if not hasattr(self, name):  # ctypes takes any name
                raise AttributeError(f"{type(self).__name__} has no {name}")
            setattr(self, name, value)


LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class CacheRoot(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("trusted", c_int64)]


class EngineOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("target", c_int32),
                ("device", c_int32), ("gpu", c_char_p),
                ("cache_roots", POINTER(CacheRoot)),
                ("num_cache_roots", c_int64), ("cache_byte_cap", c_int64),
                ("strict", c_int32), ("recompile", c_int32),
                ("jit_path", c_char_p), ("templates_dir", c_char_p),
                ("dump_dir", c_char_p), ("log", LogFunction),
                ("log_user", c_void_p), ("seed", c_uint64)]


class EngineFacts(Sized):
    _fields_ = [("struct_size", c_size_t), ("gpu", c_char_p),
                ("target", c_int32), ("multiprocessors", c_int32)]


class Statistics(Sized):
    _fields_ = [("struct_size", c_size_t), ("compiles", c_int64),
                ("disk_hits", c_int64), ("memory_hits", c_int64),
                ("compile_ms", c_double), ("load_ms", c_double)]


class KernelFacts(Sized):
    _fields_ = [("struct_size", c_size_t), ("spec", c_char_p),
                ("tile", c_char_p), ("arch", c_char_p),
                ("key_digest", c_char_p), ("compiler", c_char_p),
                ("registers", c_int32), ("spill_bytes", c_int32),
                ("local_bytes", c_int32), ("static_shared_bytes", c_int32),
                ("dynamic_shared_bytes", c_int32), ("block_threads", c_int32)]


class CacheGeometry(Sized):
    _fields_ = [("struct_size", c_size_t), ("k_format", c_char_p),
                ("v_format", c_char_p), ("head_dim", c_int32),
                ("v_head_dim", c_int32), ("num_kv_heads", c_int32),
                ("page_size", c_int32), ("order", c_int32),
                ("interleaved", c_int32), ("page_pad_bytes", c_int64),
                ("first_page_byte", c_int64)]


class Plane(ctypes.Structure):
    _fields_ = [("offset", c_int64), ("page_stride", c_int64),
                ("slot_stride", c_int64), ("head_stride", c_int64),
                ("row_bytes", c_int64)]


class StridedRows(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("page_stride", c_int64),
                ("slot_stride", c_int64), ("head_stride", c_int64)]


class CacheView(Sized):
    _fields_ = [("struct_size", c_size_t), ("codes", StridedRows),
                ("row_scales", StridedRows), ("block_scales", StridedRows),
                ("scale_ptr", c_void_p), ("scale", c_float),
                ("reserved", c_uint32)]


class SourceRows(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("token_stride", c_int64),
                ("head_stride", c_int64)]


class OutputRows(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("token_stride", c_int64),
                ("head_stride", c_int64)]


class StoreArgs(Sized):
    _fields_ = [("struct_size", c_size_t), ("k_src", SourceRows),
                ("v_src", SourceRows), ("k", POINTER(CacheView)),
                ("v", POINTER(CacheView)), ("slots", c_void_p),
                ("num_slots", c_int64), ("num_tokens", c_int32),
                ("num_kv_heads", c_int32)]


class AttentionArgs(Sized):
    _fields_ = [("struct_size", c_size_t), ("q", c_void_p),
                ("q_token_stride", c_int64), ("q_head_stride", c_int64),
                ("out", c_void_p), ("out_token_stride", c_int64),
                ("out_head_stride", c_int64), ("lse", c_void_p),
                ("lse_token_stride", c_int64), ("q_indptr", c_void_p),
                ("kv_lens", c_void_p), ("page_table", c_void_p),
                ("page_table_stride", c_int64), ("k", POINTER(CacheView)),
                ("v", POINTER(CacheView)), ("sinks", c_void_p),
                ("alibi_slopes", c_void_p), ("custom_mask", c_void_p),
                ("mask_indptr", c_void_p), ("selected", c_void_p),
                ("selected_per_head", c_int32), ("sm_scale", c_float),
                ("batch", c_int32), ("total_q", c_int32),
                ("num_q_heads", c_int32), ("num_kv_heads", c_int32),
                ("workspace", c_void_p), ("workspace_bytes", c_int64),
                ("kv_tokens", c_int64)]


class ExtendSizes(Sized):
    _fields_ = [("struct_size", c_size_t), ("kv_tokens", c_int64),
                ("kv_tokens_per_pass", c_int64), ("batch", c_int32),
                ("num_kv_heads", c_int32), ("total_q", c_int32),
                ("reserved", c_uint32)]


class DecodeGrid(ctypes.Structure):
    _fields_ = [("blocks", c_int32), ("heads_per_block", c_int32)]


class DecodeLaunch(Sized):
    _fields_ = [("struct_size", c_size_t), ("grid", DecodeGrid),
                ("workspace", c_void_p), ("workspace_bytes", c_int64)]


class MergeArgs(Sized):
    _fields_ = [("struct_size", c_size_t), ("partial_out", c_void_p),
                ("partial_lse", c_void_p), ("out", c_void_p),
                ("out_row_stride", c_int64), ("out_head_stride", c_int64),
                ("lse", c_void_p), ("lse_row_stride", c_int64),
                ("splits", c_int32), ("rows", c_int32), ("heads", c_int32),
                ("reserved", c_uint32)]


class GatherArgs(Sized):
    _fields_ = [("struct_size", c_size_t), ("k_out", OutputRows),
                ("v_out", OutputRows), ("k", POINTER(CacheView)),
                ("v", POINTER(CacheView)), ("slots", c_void_p),
                ("num_slots", c_int64), ("num_rows", c_int32),
                ("num_kv_heads", c_int32)]


# Result and arguments of every call. Handles are void*.
FUNCTIONS = {
    "abi_version": (c_int32, []),
    "version": (c_char_p, []),
    "build_id": (c_char_p, []),
    "last_error": (c_char_p, []),
    "status_name": (c_char_p, [c_int]),
    "engine_options_from_environment": (c_int, [POINTER(EngineOptions)]),
    "engine_create": (c_int, [POINTER(EngineOptions), POINTER(c_void_p)]),
    "engine_destroy": (None, [c_void_p]),
    "engine_get_facts": (c_int, [c_void_p, POINTER(EngineFacts)]),
    "engine_get_statistics": (c_int, [c_void_p, POINTER(Statistics)]),
    "check_spec": (c_int, [c_char_p, c_char_p]),
    "engine_add_score_function":
        (c_int, [c_void_p, c_char_p, c_size_t, c_char_p]),
    "prepare": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "kernel_release": (None, [c_void_p]),
    "kernel_get_facts": (c_int, [c_void_p, POINTER(KernelFacts)]),
    "cache_bytes_per_token":
        (c_int, [POINTER(CacheGeometry), POINTER(c_int64)]),
    "cache_bytes_per_page":
        (c_int, [POINTER(CacheGeometry), POINTER(c_int64)]),
    "cache_pages_that_fit":
        (c_int, [POINTER(CacheGeometry), c_int64, POINTER(c_int64)]),
    "cache_plane":
        (c_int, [POINTER(CacheGeometry), c_int32, c_int32, POINTER(Plane)]),
    "cache_plane_buffer_bytes":
        (c_int, [POINTER(CacheGeometry), c_int32, c_int32, c_int64,
                 POINTER(c_int64)]),
    "cache_make_view":
        (c_int, [POINTER(CacheGeometry), c_int32, c_void_p, c_void_p, c_void_p,
                 POINTER(CacheView)]),
    "choose_decode_grid":
        (c_int, [c_void_p, c_void_p, c_int32, c_int32, POINTER(DecodeGrid)]),
    "decode_workspace_bytes":
        (c_int, [c_void_p, POINTER(DecodeGrid), POINTER(c_int64)]),
    "prepare_extend_on_images": (c_int, [c_void_p, c_char_p,
                                         POINTER(c_void_p)]),
    "extend_workspace_bytes":
        (c_int, [c_void_p, POINTER(ExtendSizes), POINTER(c_int64)]),
    "choose_extend":
        (c_int, [c_void_p, c_char_p, POINTER(ExtendSizes), c_int64,
                 POINTER(c_int32), POINTER(c_int64)]),
    "run_store": (c_int, [c_void_p, POINTER(StoreArgs), c_void_p]),
    "run_extend": (c_int, [c_void_p, POINTER(AttentionArgs), c_void_p]),
    "run_decode":
        (c_int, [c_void_p, POINTER(AttentionArgs), POINTER(DecodeLaunch),
                 c_void_p]),
    "run_merge": (c_int, [c_void_p, POINTER(MergeArgs), c_void_p]),
    "run_gather": (c_int, [c_void_p, POINTER(GatherArgs), c_void_p]),
}

# The others return a status.
WITHOUT_STATUS = ("abi_version", "version", "build_id", "last_error",
                  "status_name", "engine_destroy", "kernel_release")


class Error(RuntimeError):
    """A call that failed: its status and message."""

    def __init__(self, status, name, message):
        super().__init__(f"{name}: {message}")
        self.status = status


class Library:
    """Every call as a method without the kvforge_ prefix. What returns a
    status raises Error where it is not OK. ctypes lets other threads run
    during a call."""

    def __init__(self, path):
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self._library, f"kvforge_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function if name in WITHOUT_STATUS
                    else self._checked(function))
        if self.abi_version() != ABI:
            raise RuntimeError(f"{self.path} has C ABI {self.abi_version()}; "
                               f"this file declares {ABI}; take both from one "
                               f"build")

    def _checked(self, function):
        def call(*arguments):
            status = function(*arguments)
            if status != OK:
                raise Error(status, self.status_name(status).decode(),
                            self.last_error().decode())
        return call


def load(path=None):
    """libkvforge.so: `path`, else that of this file's checkout or prefix, else
    the one that the loader finds."""
    parents = pathlib.Path(__file__).resolve().parents
    for beside in (parents[1] / "build/lib", parents[2] / "lib"):
        if path is None and (beside / "libkvforge.so").exists():
            path = beside / "libkvforge.so"
    return Library(path or "libkvforge.so")


class Kernel:
    """A prepared kernel."""

    def __init__(self, library, handle, spec):
        self._library, self.handle, self.spec = library, handle, spec
        self._run = getattr(library, "run_" + spec.split("/")[0])

    def __del__(self):
        self._library.kernel_release(self.handle)

    def run(self, *structs_and_stream):
        """(args, stream), decode: (args, launch, stream); stream: an address
        or None."""
        *structs, stream = structs_and_stream
        self._run(self.handle, *[byref(s) for s in structs], stream)

    def facts(self):
        facts = KernelFacts()
        self._library.kernel_get_facts(self.handle, byref(facts))
        return facts

    def workspace_bytes(self, grid):
        count = c_int64()
        self._library.decode_workspace_bytes(self.handle, byref(grid),
                                             byref(count))
        return count.value

    def extend_workspace_bytes(self, sizes):
        count = c_int64()
        self._library.extend_workspace_bytes(self.handle, byref(sizes),
                                             byref(count))
        return count.value


class Engine:
    """An engine with the environment's options but for those that are given.
    `cache_roots`: paths."""

    def __init__(self, library, cache_roots=None, log=None, **options):
        self.library, self.handle = library, None
        made = EngineOptions()
        library.engine_options_from_environment(byref(made))
        if cache_roots is not None:
            roots = (CacheRoot * len(cache_roots))(
                *[CacheRoot(os.fsencode(root)) for root in cache_roots])
            made.cache_roots, made.num_cache_roots = roots, len(roots)
        if log is not None:
            # Kept: the engine calls it as long as it lives.
            self._log = LogFunction(lambda _, line: log(line.decode()))
            made.log = self._log
        for name, value in options.items():
            if not hasattr(made, name):
                raise AttributeError(f"EngineOptions has no {name}")
            setattr(made, name, os.fsencode(value) if isinstance(value, str)
                    else value)
        handle = c_void_p()
        library.engine_create(byref(made), byref(handle))
        self.handle = handle

    def __del__(self):
        if self.handle is not None:
            self.library.engine_destroy(self.handle)

    def prepare(self, spec):
        handle = c_void_p()
        self.library.prepare(self.handle, spec.encode(), byref(handle))
        return Kernel(self.library, handle, spec)

    def prepare_extend_on_images(self, spec):
        handle = c_void_p()
        self.library.prepare_extend_on_images(self.handle, spec.encode(),
                                              byref(handle))
        return Kernel(self.library, handle, spec)

    def choose_extend(self, spec, sizes, granted_bytes):
        """Whether to prepare extend on images, and its workspace's bytes."""
        on_images, count = c_int32(), c_int64()
        self.library.choose_extend(self.handle, spec.encode(), byref(sizes),
                                   granted_bytes, byref(on_images),
                                   byref(count))
        return bool(on_images.value), count.value

    def facts(self):
        facts = EngineFacts()
        self.library.engine_get_facts(self.handle, byref(facts))
        return facts

    def statistics(self):
        statistics = Statistics()
        self.library.engine_get_statistics(self.handle, byref(statistics))
        return statistics

    def decode_grid(self, kernel, batch, num_kv_heads):
        grid = DecodeGrid()
        self.library.choose_decode_grid(self.handle, kernel.handle, batch,
                                        num_kv_heads, byref(grid))
        return grid


def plane_bytes(library, geometry, side, kind, num_pages):
    """Bytes of the buffer of a plane."""
    count = c_int64()
    library.cache_plane_buffer_bytes(byref(geometry), side, kind, num_pages,
                                     byref(count))
    return count.value


def cache_view(library, geometry, side, codes, row_scales=None,
               block_scales=None):
    """The view of a side over buffers, by address."""
    view = CacheView()
    library.cache_make_view(byref(geometry), side, codes, row_scales,
                            block_scales, byref(view))
    return view
