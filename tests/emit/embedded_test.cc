// The embedded templates are the files of templates/, byte for byte.
#include "templates/embedded.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace kvforge {
namespace {

const char kTemplates[] = KVFORGE_TEST_DATA "/../templates";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(EmbeddedFiles, AreTheTemplatesOnDisk) {
  std::set<std::string> on_disk;
  const std::filesystem::path root(kTemplates);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (extension == ".cuh" || extension == ".h") {
      on_disk.insert(entry.path().lexically_relative(root));
    }
  }
  on_disk.erase("embedded.h");
  std::set<std::string> embedded;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    embedded.insert(std::string(file.path));
    EXPECT_TRUE(std::string(file.text) ==
                ReadFile(root / std::string(file.path)))
        << file.path << " differs; is the build up to date?";
  }
  EXPECT_EQ(embedded, on_disk);
}

TEST(EmbeddedFiles, AreFoundByIncludePath) {
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    EXPECT_EQ(FindEmbeddedFile(file.path), &file);
    EXPECT_EQ(file.text.data()[file.text.size()], '\0');
  }
  EXPECT_EQ(FindEmbeddedFile("embedded.h"), nullptr);
  EXPECT_EQ(FindEmbeddedFile("arch"), nullptr);
  EXPECT_EQ(FindEmbeddedFile(""), nullptr);
  EXPECT_EQ(FindEmbeddedFile("zz.cuh"), nullptr);
}

}  // namespace
}  // namespace kvforge
