#include "tests/kernels/random_kernels.h"

#include <algorithm>
#include <set>

#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "tools/attention_case.h"

namespace kvforge {
namespace {

// Query rows (token, head of the group) of the longest query.
constexpr int kMostRows = 640;

// Gives the values of a list in a shuffled order, all of them before one comes
// again: a list of few families still has every value.
template <typename T>
class Deck {
 public:
  Deck(std::vector<T> values, uint64_t seed)
      : values_(std::move(values)), random_(seed) {}

  T Next() {
    return Next([](const T&) { return true; });
  }
  // The next that fits; those that do not are kept for later calls.
  template <typename Fits>
  T Next(const Fits& fits) {
    for (;;) {
      const auto found = std::find_if(left_.begin(), left_.end(), fits);
      if (found != left_.end()) {
        const T value = *found;
        left_.erase(found);
        return value;
      }
      std::vector<T> more = values_;
      std::shuffle(more.begin(), more.end(), random_);
      left_.insert(left_.end(), more.begin(), more.end());
    }
  }

 private:
  const std::vector<T> values_;
  std::mt19937_64 random_;
  std::vector<T> left_;
};

std::vector<const KvFormat*> ServedFormats() {
  std::vector<const KvFormat*> formats;
  for (const KvFormat& format : kFormats) {
    if (format.served) formats.push_back(&format);
  }
  return formats;
}

std::vector<int> HeadDims() {
  std::vector<int> head_dims = {512};
  for (int d = 64; d <= 256; d += 16) head_dims.push_back(d);
  return head_dims;
}

struct Decks {
  Deck<int> head_dim{HeadDims(), 1};
  Deck<int> v_head_dim{HeadDims(), 2};
  Deck<const KvFormat*> k_format{ServedFormats(), 3};
  Deck<const KvFormat*> v_format{ServedFormats(), 4};
  Deck<int> page_size{{1, 3, 16, 48, 64, 96, 128, 192, 256}, 5};
  Deck<int> group{{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 71, 128}, 6};
  Deck<int> window{{0, 0, 0, 0, 1, 2, 17, 64, 100, 1 << 20}, 7};
  Deck<float> softcap{{0, 0, 0, 0.5f, 50.0f}, 8};
  Deck<int> sinks{{0, 0, 0, 1}, 9};
  Deck<int> alibi{{0, 0, 0, 1}, 10};
  // Causal, full, custom.
  Deck<int> mask{{0, 0, 0, 1, 2}, 11};
  Deck<int> sparse_block{{0, 0, 0, 0, 0, 1, 16, 24, 64}, 12};
  Deck<DType> source_type{{DType::kF32, DType::kBf16, DType::kF16}, 13};
  Deck<DType> query_type{{DType::kF32, DType::kBf16, DType::kF16}, 14};
  Deck<DType> out_type{{DType::kF32, DType::kBf16, DType::kF16}, 15};
  Deck<int> hnd{{0, 1}, 16};
  Deck<int> q_max{{1, 1, 1, 2, 5, 16, 17, 40}, 17};
  Deck<int> mixed{{0, 1}, 18};           // whether V's format is drawn
  Deck<int> other_v_dim{{0, 0, 1}, 19};  // whether V's head_dim is
};

KernelFamily DrawFamily(Decks& decks) {
  KernelFamily family;
  CaseOptions& options = family.options;
  const auto exists_at = [](int head_dim) {
    return [head_dim](const KvFormat* format) {
      return CheckFormat(*format, head_dim).ok();
    };
  };
  options.head_dim = decks.head_dim.Next();
  options.v_head_dim =
      decks.other_v_dim.Next() ? decks.v_head_dim.Next() : options.head_dim;
  const KvFormat* k = decks.k_format.Next(exists_at(options.head_dim));
  const KvFormat* v = k;
  if (decks.mixed.Next() || !CheckFormat(*k, options.v_head_dim).ok()) {
    v = decks.v_format.Next(exists_at(options.v_head_dim));
  }
  options.format = std::string(k->name);
  options.v_format = std::string(v->name);
  const int group = decks.group.Next();
  options.num_kv_heads = group > 8 ? 1 : 2;
  options.num_q_heads = group * options.num_kv_heads;
  options.page_size = decks.page_size.Next();
  options.window = decks.window.Next();
  options.softcap = decks.softcap.Next();
  options.sinks = decks.sinks.Next() == 1;
  options.alibi = decks.alibi.Next() == 1;
  const int mask = decks.mask.Next();
  options.causal = mask != 1;
  family.custom_mask = mask == 2;
  options.sparse_block = decks.sparse_block.Next();
  options.source_type = decks.source_type.Next();
  options.query_type = decks.query_type.Next();
  options.out_type = decks.out_type.Next();
  family.hnd = decks.hnd.Next() == 1;
  family.q_max = decks.q_max.Next();
  // A wide group has many rows a token, and rows are what a case costs.
  if (group * family.q_max > kMostRows) family.q_max = 5;
  return family;
}

// A case of the family without values, for its SPECs.
AttentionCase Shape(const KernelFamily& family) {
  const CaseOptions& options = family.options;
  AttentionCase shape;
  shape.k.format = *FindFormat(options.format);
  shape.v.format = *FindFormat(options.v_format);
  shape.k.head_dim = options.head_dim;
  shape.v.head_dim = options.v_head_dim;
  shape.source_type = options.source_type;
  shape.query_type = options.query_type;
  shape.out_type = options.out_type;
  shape.num_q_heads = options.num_q_heads;
  shape.num_kv_heads = options.num_kv_heads;
  shape.page_size = options.page_size;
  shape.causal = options.causal && !family.custom_mask;
  shape.window = options.window;
  shape.softcap = options.softcap;
  shape.sparse_block = options.sparse_block;
  if (options.sinks) shape.sinks.assign(1, 0);
  if (options.alibi) shape.alibi_slopes.assign(1, 0);
  if (family.custom_mask) shape.mask_indptr.assign(2, 0);
  shape.q_indptr = {0, family.q_max};
  shape.kv_lens = {1};
  return shape;
}

bool Served(const std::vector<std::string>& specs, const std::string& gpu) {
  return std::all_of(specs.begin(), specs.end(), [&](const std::string& text) {
    const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
    return spec.ok() && SelectTile(*spec, **FindTarget(gpu)).ok();
  });
}

}  // namespace

std::vector<std::string> KernelFamily::Specs() const {
  const AttentionCase shape = Shape(*this);
  const SlotOrder order = hnd ? SlotOrder::kHnd : SlotOrder::kNhd;
  std::vector<KernelKind> kinds = {KernelKind::kStore, KernelKind::kExtend};
  if (FitsDecode(shape)) kinds.push_back(KernelKind::kDecode);
  std::vector<std::string> specs;
  for (KernelKind kind : kinds) {
    const absl::StatusOr<KernelSpec> spec = CaseSpec(shape, kind, order);
    if (!spec.ok()) return {};
    specs.push_back(spec->Text());
  }
  return specs;
}

std::vector<KernelFamily> DrawFamilies(const std::vector<std::string>& gpus,
                                       int most_kernels) {
  Decks decks;
  std::vector<KernelFamily> families;
  std::set<std::pair<std::string, std::string>> kernels;  // text's GPU, SPEC
  for (size_t drawn = 0;; ++drawn) {
    KernelFamily family = DrawFamily(decks);
    family.gpu = gpus[families.size() % gpus.size()];
    const std::vector<std::string> specs = family.Specs();
    // Not even the smallest tile fits, or the combination is not served.
    if (specs.empty() || !Served(specs, family.gpu)) continue;
    std::set<std::pair<std::string, std::string>> grown = kernels;
    for (const std::string& spec : specs) grown.insert({family.gpu, spec});
    if (static_cast<int>(grown.size()) > most_kernels) return families;
    kernels = std::move(grown);
    families.push_back(std::move(family));
  }
}

}  // namespace kvforge
