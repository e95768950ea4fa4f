// A bar on stderr for work that takes a while; silent where stderr is no
// terminal.
#ifndef KVFORGE_TOOLS_PROGRESS_H_
#define KVFORGE_TOOLS_PROGRESS_H_

#include <cstddef>
#include <string>

namespace kvforge {

// Not thread safe. The bar is wiped at the end.
class Progress {
 public:
  explicit Progress(size_t total);  // steps
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the steps are done; `what` is shown beside the bar.
  void Step(size_t done, const std::string& what);

 private:
  const size_t total_;
  const bool shown_;
};

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_PROGRESS_H_
