# Writes OUTPUT, a header with the digest of everything that decides a kernel's
# text and its compilation: FILES, a ;-list of paths below ROOT, in any order.
list(SORT FILES)
set(lines "")
foreach(file ${FILES})
  file(SHA256 "${ROOT}/${file}" digest)
  string(APPEND lines "${file} ${digest}\n")
endforeach()
string(SHA256 build_id "${lines}")
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT
"// Digest of the templates' and the compiler's sources: a part of every key.
#ifndef KVFORGE_KERNELS_BUILD_ID_H_
#define KVFORGE_KERNELS_BUILD_ID_H_

namespace kvforge {

inline constexpr char kBuildId[] =
    \"${build_id}\";

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_BUILD_ID_H_
" @ONLY)
