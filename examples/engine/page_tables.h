// Where the tokens of each sequence lie: a page table of every sequence in
// every pool, prefixes that sequences share, and pages behind a window that go
// back to their pool.
//
// Only full pages are shared, and a full page is never written again: there is
// nothing to copy on write. The tokens behind the last full page of a prefix
// are computed again.
//
// In a pool with a window a prefix is of use while its last pages are there,
// those that the next query token sees; what lies before them may be gone.
#ifndef KVFORGE_EXAMPLES_ENGINE_PAGE_TABLES_H_
#define KVFORGE_EXAMPLES_ENGINE_PAGE_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "examples/engine/page_allocator.h"
#include "examples/engine/pool_plan.h"

namespace kvforge::example {

// One sequence's share of the pools.
struct SequencePages {
  // Of each pool, from the sequence's first token on; kNoPage = behind the
  // window.
  std::vector<std::vector<int>> tables;
  // Of each full page: the digest of its tokens and of all before them.
  std::vector<std::string> keys;
};

class PageTables {
 public:
  // Plans that SizePools has sized.
  explicit PageTables(absl::Span<const PoolPlan> plans);

  // Gives a sequence without pages those of the longest prefix of `tokens` that
  // is cached, and returns how many tokens that are: fewer than there are,
  // since the last one has to be computed for the token that follows it.
  int Reuse(absl::Span<const int> tokens, SequencePages& sequence);

  // Pages for the first `num_tokens` tokens. After kResourceExhausted the
  // sequence holds what there was; Commit gives back what it has too much.
  absl::Status Reserve(int num_tokens, SequencePages& sequence);

  // `tokens` are in the cache from now on and stay: full pages get keys, pages
  // behind the windows and beyond the last token are released. Tokens that were
  // written and rejected are so forgotten.
  void Commit(absl::Span<const int> tokens, SequencePages& sequence);

  void Release(SequencePages& sequence);

  // page * page_size + offset of a token that has a page.
  int64_t Slot(int pool, const SequencePages& sequence, int position) const;

  const PageAllocator& pool(int index) const { return pools_[index]; }

 private:
  // The first token that the query token at `position` sees.
  int FirstVisible(int pool, int position) const;

  std::vector<PageAllocator> pools_;
  std::vector<int> windows_;
  int page_size_ = 0;
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_PAGE_TABLES_H_
