#include "runtime/tune/store.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// PRAGMA user_version: raised when the table's columns or their meaning change.
constexpr int kTableVersion = 1;
constexpr int kBusyMilliseconds = 30000;

constexpr char kCreate[] =
    "CREATE TABLE IF NOT EXISTS timing("
    "device TEXT NOT NULL, spec TEXT NOT NULL, shape TEXT NOT NULL,"
    "candidate TEXT NOT NULL, version TEXT NOT NULL, gpu TEXT NOT NULL,"
    "verdict TEXT NOT NULL, note TEXT NOT NULL, median_us REAL NOT NULL,"
    "spread REAL NOT NULL, samples INTEGER NOT NULL,"
    "registers INTEGER NOT NULL, shared_bytes INTEGER NOT NULL,"
    "spill_bytes INTEGER NOT NULL, measured_at TEXT NOT NULL,"
    "PRIMARY KEY(device, spec, shape, candidate, version)) WITHOUT ROWID";
constexpr char kColumns[] =
    "device, spec, shape, candidate, version, gpu, verdict, note, median_us, "
    "spread, samples, registers, shared_bytes, spill_bytes, measured_at";

// Owns a prepared statement.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& text) {
    sqlite3_prepare_v2(database, text.c_str(), -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  bool ok() const { return statement_ != nullptr; }
  // Parameters in order.
  void Bind(absl::string_view text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(),
                      static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void Bind(double value) { sqlite3_bind_double(statement_, ++bound_, value); }
  void Bind(int value) { sqlite3_bind_int(statement_, ++bound_, value); }
  int Step() { return sqlite3_step(statement_); }
  // Columns in order.
  std::string Text() {
    const auto* text = reinterpret_cast<const char*>(
        sqlite3_column_text(statement_, ++read_ - 1));
    return text == nullptr ? "" : text;
  }
  double Double() { return sqlite3_column_double(statement_, ++read_ - 1); }
  int Int() { return sqlite3_column_int(statement_, ++read_ - 1); }
  void NextRow() { read_ = 0; }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  int read_ = 0;
};

}  // namespace

absl::Status TuneStore::Error(absl::string_view what) const {
  const std::string message = absl::StrCat("tuning table ", path_, ": ", what,
                                           ": ", sqlite3_errmsg(database_));
  switch (sqlite3_errcode(database_)) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::InvalidArgumentError(
          absl::StrCat(message,
                       "; a table that `kvforge tune --db` wrote is supported; "
                       "name another file"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(
          message, "; another process has held it for ",
          kBusyMilliseconds / 1000, " s; run again when that one is done"));
    default:
      return absl::UnknownError(absl::StrCat(
          message, "; check that the folder can be written and has room"));
  }
}

absl::Status TuneStore::Execute(const char* statement) {
  if (sqlite3_exec(database_, statement, nullptr, nullptr, nullptr) ==
      SQLITE_OK) {
    return absl::OkStatus();
  }
  return Error(statement);
}

absl::Status TuneStore::CheckTable() {
  Statement version(database_, "PRAGMA user_version");
  if (!version.ok() || version.Step() != SQLITE_ROW) return Error("version");
  const int found = version.Int();
  if (found == kTableVersion) return absl::OkStatus();
  if (found == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tuning table ", path_,
        ": the file is of something else; a table that "
        "`kvforge tune --db` wrote is supported; name another file"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "tuning table ", path_, ": version ", found,
      "; this build reads version ", kTableVersion, "; tune into a new file"));
}

// Two processes that open a new file at once both come here; the second finds
// the first one's table.
absl::Status TuneStore::MakeTable() {
  RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status made;
  {
    Statement tables(database_, "SELECT count(*) FROM sqlite_master");
    const bool is_empty =
        tables.ok() && tables.Step() == SQLITE_ROW && tables.Int() == 0;
    if (is_empty) {
      made = Execute(kCreate);
      if (made.ok()) {
        made = Execute(
            absl::StrCat("PRAGMA user_version=", kTableVersion).c_str());
      }
    }
  }
  const absl::Status ended = Execute(made.ok() ? "COMMIT" : "ROLLBACK");
  RETURN_IF_ERROR(made);
  return ended;
}

absl::StatusOr<std::unique_ptr<TuneStore>> TuneStore::Open(
    const std::string& path, Access access) {
  sqlite3* database = nullptr;
  const int flags =
      (access == Access::kRead ? SQLITE_OPEN_READONLY
                               : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) |
      SQLITE_OPEN_FULLMUTEX;
  const int opened = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  std::unique_ptr<TuneStore> store(new TuneStore(path, database));
  if (opened == SQLITE_CANTOPEN && access == Access::kRead) {
    return absl::NotFoundError(
        absl::StrCat("tuning table ", path,
                     " cannot be opened; `kvforge tune SPEC --db FILE` writes "
                     "one; name that file"));
  }
  if (opened != SQLITE_OK) return store->Error("open");
  sqlite3_busy_timeout(database, kBusyMilliseconds);
  if (access == Access::kWrite) RETURN_IF_ERROR(store->MakeTable());
  RETURN_IF_ERROR(store->CheckTable());
  return store;
}

TuneStore::~TuneStore() { sqlite3_close_v2(database_); }

absl::Status TuneStore::Put(const TuneRecord& record) {
  if (record.verdict == TuneVerdict::kChecked) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning table ", path_, ": ", record.key.candidate, " of ",
                     record.key.spec,
                     " was checked and not timed; results of a GPU are "
                     "stored; tune on a GPU"));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Statement put(database_,
                absl::StrCat("INSERT OR REPLACE INTO timing(", kColumns,
                             ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  if (!put.ok()) return Error("put");
  const TuneKey& key = record.key;
  for (const std::string* text : {&key.device, &key.spec, &key.shape,
                                  &key.candidate, &key.version, &record.gpu}) {
    put.Bind(*text);
  }
  put.Bind(VerdictName(record.verdict));
  put.Bind(record.note);
  put.Bind(record.timing.median_us);
  put.Bind(record.timing.spread);
  put.Bind(record.timing.samples);
  put.Bind(record.registers);
  put.Bind(record.shared_bytes);
  put.Bind(record.spill_bytes);
  put.Bind(record.measured_at);
  return put.Step() == SQLITE_DONE ? absl::OkStatus() : Error("put");
}

absl::StatusOr<std::vector<TuneRecord>> TuneStore::Select(
    absl::string_view condition, const std::vector<std::string>& values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statement select(
      database_,
      absl::StrCat("SELECT ", kColumns, " FROM timing WHERE ", condition,
                   " ORDER BY device, spec, shape, candidate, version"));
  if (!select.ok()) return Error("select");
  for (const std::string& value : values) select.Bind(value);
  std::vector<TuneRecord> records;
  int result;
  while ((result = select.Step()) == SQLITE_ROW) {
    TuneRecord record;
    for (std::string* text :
         {&record.key.device, &record.key.spec, &record.key.shape,
          &record.key.candidate, &record.key.version, &record.gpu}) {
      *text = select.Text();
    }
    ASSIGN_OR_RETURN(record.verdict, ParseVerdict(select.Text()));
    record.note = select.Text();
    record.timing.median_us = select.Double();
    record.timing.spread = select.Double();
    record.timing.samples = select.Int();
    record.registers = select.Int();
    record.shared_bytes = select.Int();
    record.spill_bytes = select.Int();
    record.measured_at = select.Text();
    select.NextRow();
    records.push_back(std::move(record));
  }
  if (result != SQLITE_DONE) return Error("select");
  return records;
}

absl::StatusOr<std::optional<TuneRecord>> TuneStore::Find(const TuneKey& key) {
  ASSIGN_OR_RETURN(
      std::vector<TuneRecord> records,
      Select("device=? AND spec=? AND shape=? AND candidate=? AND version=?",
             {key.device, key.spec, key.shape, key.candidate, key.version}));
  if (records.empty()) return std::nullopt;
  return std::move(records.front());
}

absl::StatusOr<std::vector<TuneRecord>> TuneStore::Records(
    absl::string_view device, absl::string_view spec, absl::string_view shape) {
  std::string condition = "1";
  std::vector<std::string> values;
  const auto narrow = [&](absl::string_view column, absl::string_view value) {
    if (value.empty()) return;
    absl::StrAppend(&condition, " AND ", column, "=?");
    values.emplace_back(value);
  };
  narrow("device", device);
  narrow("spec", spec);
  narrow("shape", shape);
  return Select(condition, values);
}

}  // namespace kvforge
