"""Makes broken copies of a recorded case for the tests of `kvforge check`.

Usage: check_files.py CASE.safetensors FOLDER
"""
import json
import struct
import sys
from pathlib import Path

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
data = source.read_bytes()
(header_bytes,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8 : 8 + header_bytes])
body = data[8 + header_bytes :]


def write(name, new_header, new_body):
    text = json.dumps(new_header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / (name + ".safetensors")
    path.write_bytes(struct.pack("<Q", len(text)) + text + new_body)


def flipped(tensor, offset, mask):
    begin, _ = header[tensor]["data_offsets"]
    changed = bytearray(body)
    changed[begin + offset] ^= mask
    return bytes(changed)


def with_case(**changes):
    case = json.loads(header["__metadata__"]["case"])
    case.update(changes)
    new_header = json.loads(json.dumps(header))
    new_header["__metadata__"]["case"] = json.dumps(case)
    return new_header


write("wrong_code", header, flipped("k_codes", 5, 0x01))
write("wrong_scale", header, flipped("v_row_scale", 0, 0x01))
# Bit 6 of an f32's top byte: the value by many powers of two.
write("wrong_out", header, flipped("out", 4 * 7 + 3, 0x40))
write("wrong_lse", header, flipped("lse", 2, 0x40))
write("truncated", header, body[:-100])
write("no_metadata", {k: v for k, v in header.items() if k != "__metadata__"}, body)
write("bad_page", header, flipped("page_table", 3, 0x40))
write("bad_heads", with_case(num_q_heads=7), body)
write("bad_json", {**header, "__metadata__": {"case": "{"}}, body)
(folder / "empty.safetensors").write_bytes(b"")
# A softcap that no kernel has.
write("bad_softcap", with_case(softcap=-1.0), body)
# A pool that no machine has.
write("huge_pool", with_case(num_pages=2**31 - 1), body)
# A template that replaces none; a manifest that is not UTF-8.
(folder / "stray").mkdir(exist_ok=True)
(folder / "stray" / "stray.cuh").write_text("x\n")
(folder / "not_utf8.specs").write_bytes(
    b"decode/bf16/d64/g1/page16/bf16/compute=\xff\n"
)
