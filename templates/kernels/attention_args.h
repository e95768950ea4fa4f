// Arguments of the decode and extend kernels. Strides are bytes unless said.
#ifndef KVFORGE_TEMPLATES_KERNELS_ATTENTION_ARGS_H_
#define KVFORGE_TEMPLATES_KERNELS_ATTENTION_ARGS_H_

#include "kernels/cache_view.h"
#include "kernels/tensor_map.h"

namespace kvforge {

struct AttentionArgs {
  const unsigned char* q;  // [total_q, q heads, head_dim]
  long long q_token_stride;
  long long q_head_stride;
  unsigned char* out;  // [total_q, q heads, v_head_dim]
  long long out_token_stride;
  long long out_head_stride;
  float* lse;                  // [total_q, q heads], natural log; may be null
  long long lse_token_stride;  // elements; heads are adjacent

  const int* q_indptr;          // [batch + 1]
  const int* kv_lens;           // [batch]
  const int* page_table;        // [batch, >= ceil(kv_len / page size)]
  long long page_table_stride;  // elements
  CacheView k;
  CacheView v;
  const float* sinks;         // [q heads]; read if the spec has sinks
  const float* alibi_slopes;  // [q heads]; read if the spec has alibi
  // Read if mask=custom: bit t * kv_len + j of sequence b, low bit of a byte
  // first, from byte mask_indptr[b] on; 1 = query token t sees key j.
  const unsigned char* custom_mask;
  const int* mask_indptr;  // [batch], bytes
  // Read if sparse: numbers of the KV blocks that are attended to, in any order
  // without duplicates; -1, anywhere, is none.
  const int* selected;  // [batch, num_kv_heads, selected_per_head]
  int selected_per_head;
  float sm_scale;
  int batch;
  int num_kv_heads;
  int total_q;  // rows of q: bounds q_indptr[batch]
};

// What tensor copies can read: bits of DecodeArgs::boxes.
inline constexpr int kBoxesOfK = 1;
inline constexpr int kBoxesOfV = 2;
inline constexpr int kBoxesOfKScales = 4;  // row scales
inline constexpr int kBoxesOfVScales = 8;
inline constexpr int kBoxesOfKBlocks = 16;  // block scales
inline constexpr int kBoxesOfVBlocks = 32;

struct DecodeArgs : AttentionArgs {
  // A block attends to 2^heads_per_block_log2 neighbouring kv heads at a time;
  // they divide num_kv_heads and the block's consumer warps.
  int heads_per_block_log2;
  // Scratch of units that several blocks share: a slot of rows for the first
  // and one for the last unit of each block, f32.
  float* partials;
  // One counter a block, 0 before and after the launch.
  unsigned* arrivals;
  // Read where `boxes` says so; a box is of 16 slots and the kv heads of a
  // block (with a selection codes of one head). Codes as rows of lines
  // (ops/key_tile.cuh): [page, kv head, line, slot, byte]. Scales, of rows or
  // of the blocks of a row: [page, 1, 1, slot, kv head], or where the slots are
  // closer together [page, 1, 1, kv head, slot].
  int boxes;
  TensorMap k_map;
  TensorMap v_map;
  TensorMap k_scale_map;
  TensorMap v_scale_map;
  TensorMap k_block_map;
  TensorMap v_block_map;
};

// Extend that attends to images in a workspace (kernels/extend_images.cuh): two
// launches of one kernel a pass, each pass over the next `image_tiles` tiles.
struct ExtendArgs : AttentionArgs {
  unsigned char* images;  // of `image_tiles` tiles of each kv head
  unsigned* next_item;    // of work; 0 once the images are there
  float* states;          // of items from pass to pass; null with one pass
  int image_tiles;
  int first_tile;    // of this pass; of all sequences
  int last_pass;     // 1: tiles behind this pass's are missing
  int blocks;        // of this launch
  int makes_images;  // 1: this launch writes the images, 0: it attends to them
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_ATTENTION_ARGS_H_
