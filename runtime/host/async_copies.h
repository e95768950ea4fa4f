// The asynchronous copies of one thread that have not landed yet.
#ifndef KVFORGE_RUNTIME_HOST_ASYNC_COPIES_H_
#define KVFORGE_RUNTIME_HOST_ASYNC_COPIES_H_

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace kvforge {

class AsyncCopies {
 public:
  struct Copy {
    unsigned char* destination;
    const void* source;  // null: zeros
    int bytes;
  };

  void Add(const Copy& copy) { copies_.push_back(copy); }
  void Commit() { group_ends_.push_back(copies_.size()); }

  // Lands every group but the last `pending`, in the order of issue;
  // `on_landed` is called with each copy.
  template <class Landed>
  void Wait(size_t pending, Landed&& on_landed) {
    if (group_ends_.size() <= pending) return;
    const size_t groups = group_ends_.size() - pending;
    const size_t landed = group_ends_[groups - 1];
    for (size_t i = 0; i < landed; ++i) {
      Land(copies_[i]);
      on_landed(copies_[i]);
    }
    copies_.erase(copies_.begin(), copies_.begin() + landed);
    group_ends_.erase(group_ends_.begin(), group_ends_.begin() + groups);
    for (size_t& end : group_ends_) end -= landed;
  }

  // Lands a copy that was taken away.
  static void Land(const Copy& copy) {
    if (copy.source == nullptr) {
      std::memset(copy.destination, 0, copy.bytes);
    } else {
      std::memcpy(copy.destination, copy.source, copy.bytes);
    }
  }

  // Gives away all copies under way, in the order of issue.
  std::vector<Copy> TakeAll() {
    group_ends_.clear();
    return std::exchange(copies_, {});
  }

  size_t not_landed() const { return copies_.size(); }

  void Clear() {
    copies_.clear();
    group_ends_.clear();
  }

 private:
  std::vector<Copy> copies_;
  std::vector<size_t> group_ends_;  // copies in and before each open group
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_ASYNC_COPIES_H_
