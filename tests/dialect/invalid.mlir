// RUN: kvforge-opt %s -split-input-file -verify-diagnostics

kv.kernel @a {
  // expected-error @below {{'k' is no dimension; dimensions: m, n, d, e, h, s}}
  %q = kv.load_q : !kv.mat<m x k, bf16>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{'f8' is no element type}}
  %q = kv.load_q : !kv.mat<m x d, f8>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{mat of e5m2 does not exist; elements of mat: f32, bf16, f16, e4m3}}
  %q = kv.load_q : !kv.mat<m x d, e5m2>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{dimension d appears twice in 'd x d/16'}}
  %q = kv.load_q : !kv.mat<d x d/16, f32>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a block has at least 2 entries}}
  %s = kv.load_scale "k" : !kv.scale<n x d/1>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{codes are tokens by channels, such as 'n x d', not 'd x n'}}
  %c = kv.load_codes "k" : !kv.codes<d x n, e4m3>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{mat needs a dimension}}
  %c = kv.load_q : !kv.mat<>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{result is '!kv.mat<n x d, bf16>', not 'm x d' of f32 or bf16 or f16}}
  %q = kv.load_q : !kv.mat<n x d, bf16>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{side of the cache, "k" or "v"}}
  %c = kv.load_codes "q" : !kv.codes<n x d, e4m3>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{side "k" has channels d, not e}}
  %c = kv.load_codes "k" : !kv.codes<n x e, e4m3>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a stored scale varies over tokens (n) or channels (d), not over 'h'; use kv.arg_scale for a given one}}
  %s = kv.load_scale "k" : !kv.scale<h>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a minimum is f32, not e4m3}}
  %s = kv.load_scale "k" minimum : !kv.scale<n, e4m3>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{no launch argument is called "scale"; arguments: sm_scale, k_scale, v_scale}}
  %s = kv.arg_scale "scale" : !kv.scale<>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a launch argument is one f32, one per kv head or one per kv head and channel of its side, not '!kv.scale<n>'}}
  %s = kv.arg_scale "k_scale" : !kv.scale<n>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{exponent 128 is outside [-126, 127], the normal f32 range}}
  %s = kv.const_scale exp2(128) : !kv.scale<>
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "v" : !kv.scale<n x e/16, e4m3>
  // expected-error @below {{scale varies over 'n x e/16', which is not within 'n x d' of the codes}}
  %k = kv.dequant %c scales(%s) : (!kv.codes<n x d, e4m3>, !kv.scale<n x e/16, e4m3>) -> !kv.mat<n x d, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  // expected-error @below {{result is '!kv.mat<n x d, f16>', not 'n x d' of f32}}
  %k = kv.dequant %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  // expected-error @below {{result without a sequence is '!kv.mat<n x d, f16>', not 'n x d' of f32}}
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %b = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  // expected-error @below {{a block scale and a scale_sequence come together}}
  %k = kv.decode %c, %b sequence("E4m3ToF16Placed4") : (!kv.codes<n x d, e4m3>, !kv.scale<n x d/16, e4m3>) -> !kv.mat<n x d, f16>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  // expected-error @below {{result is '!kv.mat<m x d, f32>', not 'm x d' of f16 or bf16 or e4m3}}
  %n = kv.narrow %q : !kv.mat<m x d, bf16> -> !kv.mat<m x d, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // expected-error @below {{'m x d' and 'n x d' have no dot over n: both need the whole dimension, and share no other}}
  %s = kv.dot %q, %k reduce(n) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x d, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // expected-error @below {{'n x d' and 'n x d' have no dot over d: both need the whole dimension, and share no other}}
  %s = kv.dot %k, %k reduce(d) : !kv.mat<n x d, f32>, !kv.mat<n x d, f32> -> !kv.mat<n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // expected-error @below {{result is '!kv.mat<m x n, f32>', not 'm x n x d/32' of f32}}
  %s = kv.dot %q, %k reduce(d/32) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %x = kv.load_scale "k" : !kv.scale<n x d/16>
  // expected-error @below {{result is '!kv.mat<m x n, f32>', not 'm x n x d/16' of f32}}
  %t = kv.scale %s, %x : !kv.mat<m x n, f32>, !kv.scale<n x d/16> -> !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d/32) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
  %x = kv.load_scale "k" : !kv.scale<n x d/16>
  // expected-error @below {{'m x n x d/32' is too coarse for a scale over 'n x d/16'}}
  %t = kv.scale %s, %x : !kv.mat<m x n x d/32, f32>, !kv.scale<n x d/16> -> !kv.mat<m x n x d/32, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  // expected-error @below {{'m x d' has no dimension n}}
  %t = kv.sum %q over(n) : !kv.mat<m x d, bf16> -> !kv.mat<m, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.sum %q over(m) : !kv.mat<m x d, bf16> -> !kv.mat<d, f32>
  // expected-error @below {{addend varies over 'd', which is not within 'm x n'}}
  %u = kv.shift %s, %t : !kv.mat<m x n, f32>, !kv.mat<d, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{softcap is not positive and finite}}
  %t = kv.map %s softcap(0.0) : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{a window has at least 1 key}}
  %t = kv.mask %s window(0) : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{'m x n' has no dimension d}}
  %p, %l = kv.softmax %s over(d) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{is one of softcap, alibi and score; write one kv.map each}}
  %t = kv.map %s softcap(30.0) alibi : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{is one of softcap, alibi and score; write one kv.map each}}
  %t = kv.map %s : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{a selected block has at least 1 key}}
  %t = kv.mask %s selected(0) : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{is causal and custom; a custom mask replaces the causal one; write one of them}}
  %t = kv.mask %s causal custom : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  // expected-error @below {{a scale found from rows varies over tokens and at most blocks of channels, not over 'd'}}
  %c, %s = kv.quantize %x : (!kv.mat<n x d, bf16>) -> (!kv.codes<n x d, e4m3>, !kv.scale<d>)
  kv.yield
}

// -----

kv.kernel @a {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %g = kv.load_scale "k" : !kv.scale<n>
  // expected-error @below {{a given scale is one value, one per kv head or one per kv head and channel, not '!kv.scale<n>'}}
  %c = kv.quantize %x given(%g) : (!kv.mat<n x d, bf16>, !kv.scale<n>) -> !kv.codes<n x d, e4m3>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{lse is '!kv.mat<m, f32>', not 's x m' of f32}}
  %o, %l = kv.load_partials : !kv.mat<s x m x e, f32>, !kv.mat<m, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %o, %l = kv.load_partials : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
  // expected-error @below {{output and lse must both have dimension e}}
  %r, %t = kv.merge %o, %l over(e) : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32> -> !kv.mat<s x m, f32>, !kv.mat<m, f32>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{block with no terminator}}
  %q = kv.load_q : !kv.mat<m x d, bf16>
}

// -----

// expected-error @below {{has block arguments; kernels take launch arguments by name (kv.arg_scale)}}
kv.kernel @a {
^bb0(%x : !kv.mat<m x d, bf16>):
  kv.yield
}

// -----

kv.kernel @a {
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %r = kv.dequant %c : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  // expected-error @below {{input is '!kv.mat<n x e, f32>', not 'n x d' of f32}}
  kv.store_rows "k" %r : !kv.mat<n x e, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    // expected-error @below {{'math.sin' op may not stand in a score function; allowed: arith.constant, arith.cmpf, arith.cmpi, arith.addf, arith.addi, }}
    %r = math.sin %s : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    // expected-error @below {{'arith.extf' op may not stand in a score function}}
    %w = arith.extf %s : f32 to f64
    %r = arith.truncf %w : f64 to f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    // expected-error @below {{'arith.constant' op is no f32, i32 or i1; a score function computes with these; write the constant as one of them}}
    %w = arith.constant 1.0 : f64
    %x = arith.addf %w, %w : f64
    %r = math.absf %s : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    %b = arith.cmpi eq, %i, %j : i32
    // expected-error @below {{'arith.maxsi' op takes ('i1', 'i1') to ('i1'); in a score function it takes (i32, i32); convert the operands}}
    %x = arith.maxsi %b, %b : i1
    %r = math.absf %s : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    // expected-error @below {{'arith.mulf' op has the attribute 'fastmath', which no device text expresses; a score function is computed as written; leave it out}}
    %r = arith.mulf %s, %s fastmath<fast> : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    %x = arith.constant true
    // expected-error @below {{'arith.cmpi' op compares 'i1', 'i1'; a score function compares (i32, i32); convert first}}
    %b = arith.cmpi eq, %x, %x : i1
    %r = math.absf %s : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // expected-error @below {{'kv.map' op has a function of ('f32', 'i32', 'i32'); a score function is (score: f32, q_position: i32, kv_position: i32, q_head: i32) -> f32; give it these}}
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32):
    %r = math.absf %s : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %outside = arith.constant 1.0 : f32
  %t = kv.map %dot score {
  ^bb0(%s: f32, %i: i32, %j: i32, %h: i32):
    // expected-error @below {{'math.absf' op uses a value from outside the function; a score function sees its arguments only}}
    %r = math.absf %outside : f32
    kv.return %r
  } : !kv.mat<m x n, f32>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a launch argument is one f32, one per kv head or one per kv head and channel of its side, not '!kv.scale<h x d>'}}
  %s = kv.arg_scale "v_scale" : !kv.scale<h x d>
  kv.yield
}

// -----

kv.kernel @a {
  // expected-error @below {{a launch argument is one f32, one per kv head or one per kv head and channel of its side, not '!kv.scale<h x d>'}}
  %s = kv.arg_scale "sm_scale" : !kv.scale<h x d>
  kv.yield
}
