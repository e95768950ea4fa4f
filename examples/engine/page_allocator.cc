#include "examples/engine/page_allocator.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"

namespace kvforge::example {

PageAllocator::PageAllocator(int num_pages) : pages_(num_pages) {
  for (int page = 0; page < num_pages; ++page) {
    pages_[page].free = free_.insert(free_.end(), page);
  }
}

absl::StatusOr<int> PageAllocator::Allocate() {
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", num_pages(),
                     " pages of a KV cache pool are held; release a sequence, "
                     "or rebuild the cache with more bytes"));
  }
  const int page = free_.front();
  if (!pages_[page].key.empty()) by_key_.erase(pages_[page].key);
  pages_[page].key.clear();
  Share(page);
  return page;
}

void PageAllocator::Share(int page) {
  if (pages_[page].holders++ == 0) free_.erase(pages_[page].free);
  most_held_ = std::max(most_held_, held());
}

void PageAllocator::Release(int page) {
  assert(pages_[page].holders > 0);
  if (--pages_[page].holders > 0) return;
  // A page without a key is of no use to anybody: it goes first.
  pages_[page].free = free_.insert(
      pages_[page].key.empty() ? free_.begin() : free_.end(), page);
}

void PageAllocator::SetKey(int page, const std::string& key) {
  assert(pages_[page].holders > 0 && !key.empty());
  if (!pages_[page].key.empty() || !by_key_.emplace(key, page).second) return;
  pages_[page].key = key;
}

int PageAllocator::Find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNoPage : found->second;
}

}  // namespace kvforge::example
