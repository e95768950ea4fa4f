"""What a client of kvforge_ctypes.py does with tensors: memory from PyTorch or
NumPy whose addresses go to kernels without a copy, a paged cache in it, and
attention in float64 to compare with.
"""
import math

import kvforge_ctypes as kf

# f32 everywhere: NumPy has no bf16.
NUMPY_TYPES = {"u8": "uint8", "i32": "int32", "i64": "int64", "f32": "float32"}
TORCH_TYPES = dict(NUMPY_TYPES, bf16="bfloat16")


class NumpyTensors:
    """Tensors in host memory, for the host target."""
    target, query_type = kf.TARGET_HOST, "f32"

    def __init__(self, seed=0):
        import numpy
        self.xp = numpy
        self.random = numpy.random.default_rng(seed)
        self.name = f"NumPy {numpy.__version__}"

    def zeros(self, shape, kind):
        return self.xp.zeros(shape, NUMPY_TYPES[kind])

    def normal(self, shape, kind):
        return self.random.standard_normal(shape).astype(NUMPY_TYPES[kind])

    def of(self, values, kind):
        return self.xp.array(values, NUMPY_TYPES[kind])

    def float64(self, tensor):
        return tensor.astype("float64")

    def address(self, tensor):
        assert tensor.flags["C_CONTIGUOUS"]
        return tensor.ctypes.data

    def stream(self):
        return None

    def synchronize(self):
        pass


class TorchTensors:
    """Tensors on a GPU, or in host memory for the host target."""
    query_type = "bf16"

    def __init__(self, device, seed=0):
        import torch
        self.xp, self.device = torch, torch.device(device)
        self.random = torch.Generator(device).manual_seed(seed)
        on_gpu = self.device.type == "cuda"
        self.target = kf.TARGET_CUDA if on_gpu else kf.TARGET_HOST
        where = torch.cuda.get_device_name(self.device) if on_gpu else "the CPU"
        self.name = f"PyTorch {torch.__version__} on {where}"

    def _type(self, kind):
        return getattr(self.xp, TORCH_TYPES[kind])

    def zeros(self, shape, kind):
        return self.xp.zeros(shape, dtype=self._type(kind), device=self.device)

    def normal(self, shape, kind):
        return self.xp.randn(shape, generator=self.random,
                             device=self.device).to(self._type(kind))

    def of(self, values, kind):
        return self.xp.tensor(values, dtype=self._type(kind),
                              device=self.device)

    def float64(self, tensor):
        return tensor.to(self.xp.float64)

    def address(self, tensor):
        assert tensor.is_contiguous() and tensor.device.type == self.device.type
        return tensor.data_ptr()

    def stream(self):
        """The CUstream that torch queues its own work on."""
        if self.target == kf.TARGET_HOST:
            return None
        return self.xp.cuda.current_stream(self.device).cuda_stream

    def synchronize(self):
        if self.target == kf.TARGET_CUDA:
            self.xp.cuda.synchronize(self.device)


def make_tensors(seed=0, gpu=True):
    """PyTorch on its first GPU (if `gpu`), else PyTorch on the CPU, else
    NumPy."""
    try:
        import torch
    except ImportError:
        return NumpyTensors(seed)
    on_gpu = gpu and torch.cuda.is_available()
    return TorchTensors("cuda:0" if on_gpu else "cpu", seed)


def e4m3_values():
    """The value of each e4m3 code."""
    def value(code):
        exponent, mantissa = code >> 3 & 15, code & 7
        if code & 127 == 127:
            return math.nan
        size = (mantissa / 8 * 2.0**-6 if exponent == 0
                else (1 + mantissa / 8) * 2.0**(exponent - 7))
        return -size if code & 128 else size
    return [value(code) for code in range(256)]


class Cache:
    """A paged cache of one layer, e4m3_row or e4m3_tensor, NHD, all of K's and
    V's pages in a buffer each."""

    def __init__(self, library, tensors, format_name, head_dim, num_kv_heads,
                 page_size, num_pages, scales=(1.0, 1.0)):
        self.tensors, self.format_name = tensors, format_name
        self.num_kv_heads, self.page_size = num_kv_heads, page_size
        self.head_dim, self.num_slots = head_dim, num_pages * page_size
        self.geometry = kf.CacheGeometry(
            k_format=format_name.encode(), head_dim=head_dim,
            num_kv_heads=num_kv_heads, page_size=page_size)
        self.codes, self.row_scales, self.views = [], [], []
        self.scales = scales
        rows = (self.num_slots, num_kv_heads)
        for side in (kf.SIDE_K, kf.SIDE_V):
            sizes = [kf.plane_bytes(library, self.geometry, side, plane,
                                    num_pages)
                     for plane in (kf.PLANE_CODES, kf.PLANE_ROW_SCALES)]
            codes = tensors.zeros((*rows, head_dim), "u8")
            assert sizes[0] == self.num_slots * num_kv_heads * head_dim
            row_scales = tensors.zeros(rows, "f32") if sizes[1] else None
            view = kf.cache_view(
                library, self.geometry, side, tensors.address(codes),
                tensors.address(row_scales) if sizes[1] else None)
            view.scale = scales[side]
            self.codes.append(codes)
            self.row_scales.append(row_scales)
            self.views.append(view)
        self._values = tensors.float64(tensors.of(e4m3_values(), "f32"))

    def token_bytes(self):
        """Of one token: codes and scales of K and V."""
        scale_bytes = 0 if self.row_scales[0] is None else 4
        return 2 * self.num_kv_heads * (self.head_dim + scale_bytes)

    def rows(self, side, slots):
        """Dequantized rows [len(slots), kv heads, head_dim] in float64."""
        index = self.tensors.of(slots, "i64")
        codes = self.codes[side][index]
        if hasattr(codes, "long"):  # torch takes no u8 as an index
            codes = codes.long()
        values = self._values[codes]
        if self.row_scales[side] is None:
            return values * self.scales[side]
        return values * self.tensors.float64(self.row_scales[side][index])[
            ..., None]

    def store_args(self, k, v, slots):
        """`k`, `v`: [tokens, kv heads, head_dim]; `slots`: i64 [tokens]."""
        return kf.StoreArgs(
            k_src=source_rows(self.tensors, k),
            v_src=source_rows(self.tensors, v),
            k=ctypes_pointer(self.views[0]), v=ctypes_pointer(self.views[1]),
            slots=self.tensors.address(slots), num_slots=self.num_slots,
            num_tokens=k.shape[0], num_kv_heads=self.num_kv_heads)


def ctypes_pointer(struct):
    return kf.POINTER(type(struct))(struct)


def row_strides(tensor):
    """Bytes between the tokens and between the heads of [tokens, heads, dim]."""
    element = tensor.itemsize if hasattr(tensor, "itemsize") else (
        tensor.element_size())
    return tensor.shape[1] * tensor.shape[2] * element, tensor.shape[2] * element


def source_rows(tensors, tensor):
    return kf.SourceRows(tensors.address(tensor), *row_strides(tensor))


class Attention:
    """Query rows of a batch, their results and the arguments of a run. `q`:
    [total_q, q heads, head_dim]; `page_table`: i32 [batch, pages]."""

    def __init__(self, cache, q, q_lens, kv_lens, page_table, sm_scale):
        tensors = cache.tensors
        starts = [sum(q_lens[:b]) for b in range(len(q_lens) + 1)]
        self.q, self.page_table = q, page_table
        self.q_indptr = tensors.of(starts, "i32")
        self.kv_lens = tensors.of(kv_lens, "i32")
        self.out = tensors.zeros(q.shape, tensors.query_type)
        self.lse = tensors.zeros(tuple(q.shape[:2]), "f32")
        token_stride, head_stride = row_strides(q)
        address = tensors.address
        self.args = kf.AttentionArgs(
            q=address(q), q_token_stride=token_stride,
            q_head_stride=head_stride, out=address(self.out),
            out_token_stride=token_stride, out_head_stride=head_stride,
            lse=address(self.lse), lse_token_stride=q.shape[1],
            q_indptr=address(self.q_indptr), kv_lens=address(self.kv_lens),
            page_table=address(page_table),
            page_table_stride=page_table.shape[1],
            k=ctypes_pointer(cache.views[0]), v=ctypes_pointer(cache.views[1]),
            sm_scale=sm_scale, batch=len(q_lens), total_q=q.shape[0],
            num_q_heads=q.shape[1], num_kv_heads=cache.num_kv_heads)


class DecodeLaunch:
    """The grid for a batch and its workspace."""

    def __init__(self, engine, kernel, tensors, batch, num_kv_heads):
        grid = engine.decode_grid(kernel, batch, num_kv_heads)
        count = kernel.workspace_bytes(grid)
        self.workspace = tensors.zeros((max(count, 16),), "u8")
        self.launch = kf.DecodeLaunch(
            grid=grid, workspace=tensors.address(self.workspace),
            workspace_bytes=count)


def attention_float64(tensors, q, k, v, sm_scale):
    """Causal attention, aligned at the end, of q [rows, q heads, dim] to k and
    v [tokens, kv heads, dim]: out [rows, q heads, dim], lse [rows, q heads]."""
    xp = tensors.xp
    rows, tokens, kv_heads = q.shape[0], k.shape[0], k.shape[1]
    grouped = q.reshape(rows, kv_heads, -1, q.shape[2])
    scores = xp.einsum("rhgd,thd->rhgt", grouped, k) * sm_scale
    hidden = [[-math.inf if t > tokens - rows + r else 0.0
               for t in range(tokens)] for r in range(rows)]
    scores = scores + tensors.float64(tensors.of(hidden, "f32"))[:, None, None]
    highest = scores.max()
    weights = xp.exp(scores - highest)
    total = weights.sum(-1)
    out = xp.einsum("rhgt,thd->rhgd", weights, v) / total[..., None]
    return (out.reshape(q.shape),
            (xp.log(total) + highest).reshape(rows, q.shape[1]))


def relative_error(tensors, got, expected):
    """max|got - expected| / max|expected|; NaN anywhere gives NaN."""
    worst = abs(tensors.float64(got) - expected).max()
    return float(worst / abs(expected).max())
