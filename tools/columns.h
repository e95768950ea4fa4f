// A table as text.
#ifndef KVFORGE_TOOLS_COLUMNS_H_
#define KVFORGE_TOOLS_COLUMNS_H_

#include <string>
#include <vector>

namespace kvforge {

// Rows of text in aligned columns, a line a row.
std::string Columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_COLUMNS_H_
