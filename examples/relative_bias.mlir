// A score function: -0.1 for each token between query and key, and no key
// further than 1024 tokens away. docs/score.md says what may stand here.
func.func @relative_bias(%score: f32, %q_position: i32, %kv_position: i32,
                         %q_head: i32) -> f32 {
  %difference = arith.subi %q_position, %kv_position : i32
  %distance = math.absi %difference : i32
  %tokens = arith.sitofp %distance : i32 to f32
  %slope = arith.constant -0.1 : f32
  %bias = arith.mulf %slope, %tokens : f32
  %biased = arith.addf %score, %bias : f32
  %reach = arith.constant 1024 : i32
  %near = arith.cmpi sle, %distance, %reach : i32
  %hidden = arith.constant 0xFF800000 : f32  // -infinity: as if masked
  %result = arith.select %near, %biased, %hidden : f32
  func.return %result : f32
}
