#include "tools/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxWantedBytes = uint64_t{1} << 30;
constexpr char kMetadata[] = "__metadata__";

struct DTypeRow {
  absl::string_view name;
  int bytes;
};
constexpr DTypeRow kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},      {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2},  {"I16", 2},     {"F16", 2}, {"BF16", 2},    {"U32", 4},
    {"I32", 4},  {"F32", 4},     {"U64", 8}, {"I64", 8},     {"F64", 8},
    {"C64", 8},  {"F8_E8M0", 1},
};

absl::Status Malformed(absl::string_view file, absl::string_view fault) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": ", fault,
                   "; supported: safetensors files whose header describes all "
                   "of their bytes; write the file again"));
}

// Parses the header. A name given twice in one object, or more nesting than the
// form has, is a fault; the depth limit also bounds memory on hostile input.
absl::StatusOr<Json> ParseHeader(absl::string_view file, const char* begin,
                                 size_t length) {
  constexpr int kMaxDepth = 3;  // header, tensor, shape
  std::string fault;
  std::vector<std::set<std::string>> names;
  const Json::parser_callback_t callback =
      [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > kMaxDepth) fault = "the header is nested too deep";
        if (!fault.empty()) return false;
        if (event == Json::parse_event_t::object_start) {
          names.emplace_back();
        } else if (event == Json::parse_event_t::object_end) {
          if (!names.empty()) names.pop_back();
        } else if (event == Json::parse_event_t::key && !names.empty()) {
          const std::string& key = value.get_ref<const std::string&>();
          if (!names.back().insert(key).second) {
            fault = absl::StrCat("'", key, "' appears twice in the header");
          }
        }
        return true;
      };
  Json header = Json::parse(begin, begin + length, callback,
                            /*allow_exceptions=*/false);
  if (!fault.empty()) return Malformed(file, fault);
  if (!header.is_object()) {
    return Malformed(file, "the header is not a JSON object");
  }
  return header;
}

// A non-negative integer that an int64_t holds.
bool ReadInt64(const Json& value, int64_t* result) {
  if (!value.is_number_unsigned()) return false;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *result = static_cast<int64_t>(number);
  return true;
}

// Bytes of a tensor; false where they pass int64_t.
bool ByteCount(const std::vector<int64_t>& shape, int element_bytes,
               int64_t* bytes) {
  // An empty dimension makes the tensor empty, whatever the others are.
  if (std::count(shape.begin(), shape.end(), 0) != 0) {
    *bytes = 0;
    return true;
  }
  *bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(*bytes, extent, bytes)) return false;
  }
  return true;
}

struct TensorEntry {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

using EntryMap = std::map<std::string, TensorEntry>;

absl::StatusOr<TensorEntry> ReadEntry(absl::string_view file,
                                      const std::string& name,
                                      const Json& value) {
  const auto fault = [&](absl::string_view what) {
    return Malformed(file, absl::StrCat("tensor '", name, "': ", what));
  };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return fault("it needs dtype, shape and data_offsets and nothing else");
  }
  TensorEntry entry;
  const Json& dtype = value["dtype"];
  if (!dtype.is_string()) return fault("dtype is not a string");
  entry.dtype = dtype.get_ref<const std::string&>();
  const int element_bytes = SafetensorsDTypeBytes(entry.dtype);
  if (element_bytes == 0) {
    return fault(absl::StrCat("dtype '", entry.dtype, "' is unknown"));
  }
  const Json& shape = value["shape"];
  if (!shape.is_array()) return fault("shape is not an array");
  for (const Json& extent : shape) {
    if (!ReadInt64(extent, &entry.shape.emplace_back())) {
      return fault("shape has an element that is no extent");
    }
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 ||
      !ReadInt64(offsets[0], &entry.begin) ||
      !ReadInt64(offsets[1], &entry.end) || entry.begin > entry.end) {
    return fault("data_offsets is not [begin, end] with begin <= end");
  }
  int64_t bytes = 0;
  if (!ByteCount(entry.shape, element_bytes, &bytes) ||
      bytes != entry.end - entry.begin) {
    return fault(absl::StrCat("its shape and dtype do not fill its ",
                              entry.end - entry.begin, " bytes"));
  }
  return entry;
}

// The tensors, in order of their bytes, follow each other and end at `size`.
absl::Status CheckCoverage(absl::string_view file, const EntryMap& entries,
                           uint64_t size) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  for (const auto& [name, entry] : entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.second->begin, a.second->end) <
           std::make_pair(b.second->begin, b.second->end);
  });
  int64_t position = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != position) {
      return Malformed(
          file, absl::StrCat("tensor '", *name, "' begins at byte ",
                             entry->begin, " of the data, expected ", position,
                             ": an overlap or a gap"));
    }
    position = entry->end;
  }
  if (static_cast<uint64_t>(position) != size) {
    return Malformed(file, absl::StrCat("the tensors end at byte ", position,
                                        " of ", size, " bytes of data"));
  }
  return absl::OkStatus();
}

// The header's length, from a file's first bytes.
absl::StatusOr<uint64_t> HeaderBytes(absl::string_view file,
                                     absl::string_view first_bytes,
                                     uint64_t file_bytes) {
  if (first_bytes.size() < kLengthBytes) {
    return Malformed(file, absl::StrCat("it has ", file_bytes,
                                        " bytes, the header's length takes 8"));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, first_bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes ||
      header_bytes > file_bytes - kLengthBytes) {
    return Malformed(
        file, absl::StrCat("its header claims ", header_bytes, " bytes, ",
                           file_bytes - kLengthBytes, " follow and ",
                           kMaxHeaderBytes, " are allowed"));
  }
  return header_bytes;
}

// The tensors that a header describes, which fill `data_bytes` exactly.
absl::StatusOr<EntryMap> ParseTable(
    absl::string_view file, absl::string_view header_text, uint64_t data_bytes,
    std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const Json header,
                   ParseHeader(file, header_text.data(), header_text.size()));
  EntryMap entries;
  for (const auto& [key, value] : header.items()) {
    if (key != kMetadata) {
      ASSIGN_OR_RETURN(entries[key], ReadEntry(file, key, value));
      continue;
    }
    if (!value.is_object()) return Malformed(file, "__metadata__ is no map");
    for (const auto& [field, text] : value.items()) {
      if (!text.is_string()) {
        return Malformed(
            file, absl::StrCat("__metadata__ '", field, "' is not a string"));
      }
      metadata[field] = text.get<std::string>();
    }
  }
  RETURN_IF_ERROR(CheckCoverage(file, entries, data_bytes));
  return entries;
}

absl::Status ReadAt(int fd, absl::string_view file, uint64_t offset, void* to,
                    uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd, static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "cannot read", file);
    if (got == 0) {
      return Malformed(file, absl::StrCat("it ends at byte ", offset + done,
                                          " while it is read"));
    }
    done += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

int SafetensorsDTypeBytes(absl::string_view dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == dtype) return row.bytes;
  }
  return 0;
}

int64_t Tensor::ElementCount() const {
  const int bytes_each = SafetensorsDTypeBytes(dtype);
  return bytes_each == 0 ? 0 : static_cast<int64_t>(bytes.size()) / bytes_each;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  return Parse(std::move(bytes), path);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::OpenSome(
    const std::string& path,
    const std::function<bool(absl::string_view name)>& wanted) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, "cannot open", path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return FileError(errno, "cannot examine", path);
  }
  if (!S_ISREG(info.st_mode)) return Malformed(path, "it is no regular file");
  const uint64_t file_bytes = static_cast<uint64_t>(info.st_size);
  std::string length(std::min<uint64_t>(kLengthBytes, file_bytes), '\0');
  RETURN_IF_ERROR(ReadAt(fd.get(), path, 0, length.data(), length.size()));
  ASSIGN_OR_RETURN(const uint64_t header_bytes,
                   HeaderBytes(path, length, file_bytes));
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(
      ReadAt(fd.get(), path, kLengthBytes, header.data(), header.size()));
  const uint64_t data_begin = kLengthBytes + header_bytes;
  SafetensorsFile file;
  file.name_ = path;
  ASSIGN_OR_RETURN(
      EntryMap entries,
      ParseTable(path, header, file_bytes - data_begin, file.metadata_));
  uint64_t wanted_bytes = 0;
  for (auto it = entries.begin(); it != entries.end();) {
    if (wanted(it->first)) {
      wanted_bytes += static_cast<uint64_t>(it->second.end - it->second.begin);
      ++it;
    } else {
      it = entries.erase(it);
    }
  }
  if (wanted_bytes > kMaxWantedBytes) {
    return Malformed(path, absl::StrCat("the tensors that are read from it "
                                        "have ",
                                        wanted_bytes, " bytes, ",
                                        kMaxWantedBytes, " are allowed"));
  }
  file.data_.resize(wanted_bytes);
  uint64_t used = 0;
  for (auto& [key, entry] : entries) {
    const uint64_t bytes = static_cast<uint64_t>(entry.end - entry.begin);
    RETURN_IF_ERROR(ReadAt(fd.get(), path,
                           data_begin + static_cast<uint64_t>(entry.begin),
                           file.data_.data() + used, bytes));
    file.tensors_[key] =
        Tensor{std::move(entry.dtype), std::move(entry.shape),
               absl::MakeConstSpan(file.data_).subspan(used, bytes)};
    used += bytes;
  }
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::string bytes,
                                                       absl::string_view name) {
  ASSIGN_OR_RETURN(const uint64_t header_bytes,
                   HeaderBytes(name, bytes, bytes.size()));
  SafetensorsFile file;
  file.name_ = std::string(name);
  const size_t data_begin = kLengthBytes + header_bytes;
  ASSIGN_OR_RETURN(
      EntryMap entries,
      ParseTable(name,
                 absl::string_view(bytes).substr(kLengthBytes, header_bytes),
                 bytes.size() - data_begin, file.metadata_));
  file.data_.assign(bytes.begin() + data_begin, bytes.end());
  for (auto& [key, entry] : entries) {
    file.tensors_[key] =
        Tensor{std::move(entry.dtype), std::move(entry.shape),
               absl::MakeConstSpan(file.data_)
                   .subspan(static_cast<size_t>(entry.begin),
                            static_cast<size_t>(entry.end - entry.begin))};
  }
  return file;
}

absl::StatusOr<Tensor> SafetensorsFile::Find(
    absl::string_view name, absl::string_view dtype,
    absl::Span<const int64_t> shape) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) {
    return Malformed(name_, absl::StrCat("tensor '", name, "' is missing"));
  }
  const Tensor& tensor = found->second;
  bool matches = tensor.dtype == dtype && tensor.shape.size() == shape.size();
  for (size_t i = 0; matches && i < shape.size(); ++i) {
    matches = shape[i] == -1 || shape[i] == tensor.shape[i];
  }
  if (matches) return tensor;
  return Malformed(
      name_, absl::StrCat("tensor '", name, "' is ", tensor.dtype, " [",
                          absl::StrJoin(tensor.shape, ", "), "], expected ",
                          dtype, " [", absl::StrJoin(shape, ", "), "]"));
}

}  // namespace kvforge
