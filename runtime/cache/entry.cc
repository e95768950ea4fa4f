#include "runtime/cache/entry.h"

#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/digest.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr absl::string_view kMagic = "kvforge\n";
constexpr size_t kPreludeBytes = 24;  // up to the fields

void AppendInteger(std::string& out, uint64_t value, int width_bytes) {
  for (int i = 0; i < width_bytes; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t LoadInteger(absl::string_view bytes, size_t offset, int width_bytes) {
  uint64_t value = 0;
  for (int i = 0; i < width_bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  }
  return value;
}

absl::Status Damaged(size_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("at byte ", offset, ": ", what));
}

// Appends pairs of name and value.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}
  void Text(absl::string_view name, const std::string& value) {
    Pair(name, value);
  }
  void Number(absl::string_view name, int value) {
    Pair(name, absl::StrCat(value));
  }

 private:
  void Pair(absl::string_view name, absl::string_view value) {
    for (const absl::string_view part : {name, value}) {
      AppendInteger(out_, part.size(), 4);
      out_.append(part.data(), part.size());
    }
  }
  std::string& out_;
};

// Reads the same pairs in the same order; the first thing that is odd stays in
// status() and every later call does nothing.
class FieldReader {
 public:
  FieldReader(absl::string_view bytes, size_t begin, size_t end)
      : bytes_(bytes), at_(begin), end_(end) {}

  void Text(absl::string_view name, std::string& value) {
    if (!status_.ok()) return;
    const size_t name_at = at_;
    absl::string_view got;
    if (!Part(got)) return;
    if (got != name) {
      status_ = Damaged(name_at, absl::StrCat("no field \"", name, "\""));
      return;
    }
    absl::string_view text;
    if (Part(text)) value = std::string(text);
  }

  void Number(absl::string_view name, int& value) {
    const size_t name_at = at_;
    std::string text;
    Text(name, text);
    if (status_.ok() && !absl::SimpleAtoi(text, &value)) {
      status_ = Damaged(name_at,
                        absl::StrCat("field \"", name, "\" is not a number"));
    }
  }

  bool ok() const { return status_.ok(); }

  absl::Status Finish() {
    if (status_.ok() && at_ != end_) {
      status_ = Damaged(at_, "bytes after the last field");
    }
    return status_;
  }

 private:
  bool Part(absl::string_view& part) {
    if (end_ - at_ < 4) {
      status_ = Damaged(at_, "the fields end inside a length");
      return false;
    }
    const uint64_t part_bytes = LoadInteger(bytes_, at_, 4);
    if (part_bytes > end_ - at_ - 4) {
      status_ = Damaged(at_, "a field reaches past the fields");
      return false;
    }
    part = bytes_.substr(at_ + 4, part_bytes);
    at_ += 4 + part_bytes;
    return true;
  }

  absl::string_view bytes_;
  size_t at_;
  const size_t end_;
  absl::Status status_;
};

// The one list of fields, for writing and for reading.
template <typename Visitor, typename EntryType>
void VisitFields(Visitor& visit, EntryType& entry) {
  visit.Text("spec", entry.key.spec);
  visit.Text("tile", entry.key.tile);
  visit.Text("arch", entry.key.arch);
  visit.Text("build_id", entry.key.build_id);
  visit.Text("symbol", entry.symbol);
  visit.Number("registers", entry.facts.registers);
  visit.Number("static_shared_bytes", entry.facts.static_shared_bytes);
  visit.Number("dynamic_shared_bytes", entry.facts.dynamic_shared_bytes);
  visit.Number("block_threads", entry.facts.block_threads);
  visit.Number("spill_bytes", entry.facts.spill_bytes);
  visit.Number("local_bytes", entry.facts.local_bytes);
  visit.Text("compiler", entry.facts.compiler);
  visit.Text("text_digest", entry.facts.text_digest);
  visit.Text("compiled_at", entry.facts.compiled_at);
}

absl::StatusOr<Entry> ParseFields(absl::string_view bytes, size_t end) {
  Entry entry;
  FieldReader reader(bytes, kPreludeBytes, end);
  VisitFields(reader, entry);
  int option_count = 0;
  reader.Number("options", option_count);
  // The count is not trusted: each option takes bytes, so the reader stops.
  for (int i = 0; i < option_count; ++i) {
    std::string option;
    reader.Text("option", option);
    entry.key.options.push_back(std::move(option));
    if (!reader.ok()) break;
  }
  RETURN_IF_ERROR(reader.Finish());
  return entry;
}

}  // namespace

std::string SerializeEntry(const Entry& entry) {
  std::string fields;
  FieldWriter writer(fields);
  VisitFields(writer, entry);
  writer.Number("options", static_cast<int>(entry.key.options.size()));
  for (const std::string& option : entry.key.options) {
    writer.Text("option", option);
  }
  std::string bytes(kMagic);
  AppendInteger(bytes, static_cast<uint32_t>(entry.key.schema), 4);
  AppendInteger(bytes, fields.size(), 4);
  AppendInteger(bytes, entry.payload.size(), 8);
  bytes += fields;
  bytes += Sha256Bytes(entry.payload);
  bytes += Sha256Bytes(bytes);
  bytes += entry.payload;
  return bytes;
}

absl::StatusOr<Entry> ParseEntry(absl::string_view bytes) {
  if (bytes.size() < kPreludeBytes) {
    return Damaged(bytes.size(),
                   absl::StrCat("the file ends before byte ", kPreludeBytes));
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return Damaged(0, "no kvforge entry");
  }
  const uint64_t schema = LoadInteger(bytes, 8, 4);
  if (schema != kCacheSchema) {
    return Damaged(8, absl::StrCat("schema ", schema, "; this build reads ",
                                   kCacheSchema));
  }
  const uint64_t fields_bytes = LoadInteger(bytes, 12, 4);
  const uint64_t payload_bytes = LoadInteger(bytes, 16, 8);
  const uint64_t rest_bytes = bytes.size() - kPreludeBytes;
  if (fields_bytes + 2 * kDigestBytes > rest_bytes) {
    return Damaged(bytes.size(), "the file ends inside the header");
  }
  const size_t payload_digest_at = kPreludeBytes + fields_bytes;
  const size_t header_digest_at = payload_digest_at + kDigestBytes;
  const size_t payload_at = header_digest_at + kDigestBytes;
  if (bytes.substr(header_digest_at, kDigestBytes) !=
      Sha256Bytes(bytes.substr(0, header_digest_at))) {
    return Damaged(header_digest_at, "the header's digest does not match");
  }
  if (payload_bytes != bytes.size() - payload_at) {
    return Damaged(payload_at,
                   absl::StrCat("the payload has ", bytes.size() - payload_at,
                                " bytes, not ", payload_bytes));
  }
  const absl::string_view payload = bytes.substr(payload_at);
  if (bytes.substr(payload_digest_at, kDigestBytes) != Sha256Bytes(payload)) {
    return Damaged(payload_at, "the payload's digest does not match");
  }
  ASSIGN_OR_RETURN(Entry entry, ParseFields(bytes, payload_digest_at));
  entry.key.schema = static_cast<int>(schema);
  entry.payload = std::string(payload);
  return entry;
}

}  // namespace kvforge
