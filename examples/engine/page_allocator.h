// The pages of one pool, shared by counting their holders.
//
// A page that nobody holds any more keeps its bytes and its key until it is
// handed out again, the least recently released one first; until then a
// sequence with the same prefix finds it by its key.
#ifndef KVFORGE_EXAMPLES_ENGINE_PAGE_ALLOCATOR_H_
#define KVFORGE_EXAMPLES_ENGINE_PAGE_ALLOCATOR_H_

#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace kvforge::example {

inline constexpr int kNoPage = -1;

class PageAllocator {
 public:
  explicit PageAllocator(int num_pages);

  // A page for one holder, without a key. kResourceExhausted if all are held.
  absl::StatusOr<int> Allocate();
  // One more holder, of a page that has some or of one that was found.
  void Share(int page);
  // One holder fewer.
  void Release(int page);

  // Says what a held page contains and will contain while it is held. Ignored
  // if another page has that key: one of two equal pages is found.
  void SetKey(int page, const std::string& key);
  // kNoPage if there is none.
  int Find(const std::string& key) const;

  int num_pages() const { return static_cast<int>(pages_.size()); }
  int holders(int page) const { return pages_[page].holders; }
  int held() const { return num_pages() - static_cast<int>(free_.size()); }
  int most_held() const { return most_held_; }

 private:
  struct Page {
    int holders = 0;
    std::string key;                // "" = none
    std::list<int>::iterator free;  // where it is in free_, without holders
  };

  std::vector<Page> pages_;
  std::list<int> free_;  // the next one to hand out first
  std::unordered_map<std::string, int> by_key_;
  int most_held_ = 0;
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_PAGE_ALLOCATOR_H_
