// A folder of a test's own, removed at its end.
#ifndef KVFORGE_TESTS_RUNTIME_TEMPORARY_FOLDER_H_
#define KVFORGE_TESTS_RUNTIME_TEMPORARY_FOLDER_H_

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace kvforge {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = absl::StrCat(::testing::TempDir(), "/kvforge-XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
    EXPECT_FALSE(path_.empty()) << "no temporary folder";
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(absl::string_view name) const {
    return absl::StrCat(path_, "/", name);
  }

 private:
  std::string path_;
};

// Paths of the files under a folder, in no order.
inline std::vector<std::string> FilesUnder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (item.is_regular_file()) paths.push_back(item.path().string());
  }
  return paths;
}

// Runs `body` in a child process; what it returns is the child's exit code.
inline pid_t StartChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

// The exit code of a child, or -1 where it was killed.
inline int WaitForChild(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// Runs `body` in `count` children at once, with their numbers; whether all
// returned true.
inline bool RunInProcesses(int count, const std::function<bool(int)>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(StartChild([&body, i] { return body(i) ? 0 : 1; }));
  }
  bool all = true;
  for (const pid_t child : children) all = WaitForChild(child) == 0 && all;
  return all;
}

}  // namespace kvforge

#endif  // KVFORGE_TESTS_RUNTIME_TEMPORARY_FOLDER_H_
