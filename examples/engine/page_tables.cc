#include "examples/engine/page_tables.h"

#include <algorithm>
#include <cassert>

#include "runtime/base/digest.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

std::string PageKey(const std::string& previous, absl::Span<const int> tokens) {
  return Sha256()
      .Update(previous)
      .Update({reinterpret_cast<const char*>(tokens.data()),
               tokens.size() * sizeof(int)})
      .Finish();
}

// Keys of the full pages of `tokens`, behind those that are there.
void AppendKeys(absl::Span<const int> tokens, int page_size,
                std::vector<std::string>& keys) {
  while ((keys.size() + 1) * page_size <= tokens.size()) {
    keys.push_back(PageKey(keys.empty() ? "" : keys.back(),
                           tokens.subspan(keys.size() * page_size, page_size)));
  }
}

}  // namespace

PageTables::PageTables(absl::Span<const PoolPlan> plans) {
  for (const PoolPlan& plan : plans) {
    pools_.emplace_back(plan.num_pages);
    windows_.push_back(plan.window);
    page_size_ = plan.geometry.page_size;
  }
}

int PageTables::FirstVisible(int pool, int position) const {
  return windows_[pool] == 0 ? 0 : std::max(0, position - windows_[pool] + 1);
}

int PageTables::Reuse(absl::Span<const int> tokens, SequencePages& sequence) {
  assert(sequence.keys.empty());
  sequence.tables.assign(pools_.size(), {});
  std::vector<std::string> keys;
  AppendKeys(tokens.subspan(0, tokens.size() - 1), page_size_, keys);
  // Of each pool: the page of each key, kNoPage where it is not cached.
  std::vector<std::vector<int>> found(pools_.size());
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    for (const std::string& key : keys) {
      found[pool].push_back(pools_[pool].Find(key));
    }
  }
  int num_pages = static_cast<int>(keys.size());
  const auto usable = [&](size_t pool) {
    const int first = FirstVisible(pool, num_pages * page_size_) / page_size_;
    return std::count(found[pool].begin() + std::min(first, num_pages),
                      found[pool].begin() + num_pages, kNoPage) == 0;
  };
  for (size_t pool = 0; pool < pools_.size();) {
    if (usable(pool)) {
      ++pool;
    } else {
      --num_pages;
      pool = 0;
    }
  }
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const int first = FirstVisible(pool, num_pages * page_size_) / page_size_;
    std::vector<int>& table = sequence.tables[pool];
    table.assign(num_pages, kNoPage);
    for (int i = first; i < num_pages; ++i) {
      table[i] = found[pool][i];
      pools_[pool].Share(table[i]);
    }
  }
  keys.resize(num_pages);
  sequence.keys = std::move(keys);
  return num_pages * page_size_;
}

absl::Status PageTables::Reserve(int num_tokens, SequencePages& sequence) {
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    std::vector<int>& table = sequence.tables[pool];
    while (static_cast<int>(table.size()) * page_size_ < num_tokens) {
      ASSIGN_OR_RETURN(const int page, pools_[pool].Allocate());
      table.push_back(page);
    }
  }
  return absl::OkStatus();
}

void PageTables::Commit(absl::Span<const int> tokens, SequencePages& sequence) {
  const size_t known = sequence.keys.size();
  AppendKeys(tokens, page_size_, sequence.keys);
  const int num_tokens = static_cast<int>(tokens.size());
  const size_t num_pages = (num_tokens + page_size_ - 1) / page_size_;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    std::vector<int>& table = sequence.tables[pool];
    for (size_t i = known; i < sequence.keys.size(); ++i) {
      pools_[pool].SetKey(table[i], sequence.keys[i]);
    }
    for (; table.size() > num_pages; table.pop_back()) {
      pools_[pool].Release(table.back());
    }
    const int visible = FirstVisible(pool, num_tokens) / page_size_;
    for (int i = std::min(visible, static_cast<int>(table.size())) - 1;
         i >= 0 && table[i] != kNoPage; --i) {
      pools_[pool].Release(table[i]);
      table[i] = kNoPage;
    }
  }
}

void PageTables::Release(SequencePages& sequence) {
  for (size_t pool = 0; pool < sequence.tables.size(); ++pool) {
    // The last page first: a prefix is of use without what follows it.
    std::vector<int>& table = sequence.tables[pool];
    for (auto page = table.rbegin(); page != table.rend(); ++page) {
      if (*page != kNoPage) pools_[pool].Release(*page);
    }
  }
  sequence = {};
}

int64_t PageTables::Slot(int pool, const SequencePages& sequence,
                         int position) const {
  return int64_t{sequence.tables[pool][position / page_size_]} * page_size_ +
         position % page_size_;
}

}  // namespace kvforge::example
