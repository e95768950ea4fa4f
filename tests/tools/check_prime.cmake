# Primes a folder with KVFORGE, again, with a SPEC that fails, then verifies it
# whole, damaged and without an entry; runs from it in strict mode.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(cache ${FOLDER}/cache)

function(expect code last)
  execute_process(COMMAND ${KVFORGE} ${ARGN}
    OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE result)
  message(STATUS "kvforge ${ARGN}: exit ${result}\n${out}${err}")
  string(STRIP "${out}" stripped)
  string(REGEX REPLACE ".*\n" "" line "${stripped}")
  if(NOT result EQUAL code OR NOT line MATCHES "${last}")
    message(FATAL_ERROR "expected exit ${code} and a last line like '${last}'")
  endif()
  set(output "${out}${err}" PARENT_SCOPE)
endfunction()

file(WRITE ${FOLDER}/manifest.txt
"# A comment, an empty line, a SPEC given twice.

store/e4m3_row/d64/g1/page16/f32
store/e4m3_row/d64/g8/page16/f32   # g is printed as g1
decode/e4m3_row/d64/g4/page16/f32
extend/e4m3_row/d64/g4/page16/f32
")
# Three kernels: the store is given twice.
set(prime prime ${FOLDER}/manifest.txt --gpus host-sm_80 --cache ${cache})
expect(0 "^2 compiled, 0 found, 0 failed" ${prime} -j 2 --shard 0/2)
expect(0 "^1 compiled, 2 found, 0 failed" ${prime} -j 2)
expect(0 "^0 compiled, 3 found, 0 failed" ${prime})
# A SPEC that does not compile: its template is broken.
file(WRITE ${FOLDER}/broken/kernels/store.cuh "#error broken\n")
expect(1 "^0 compiled, 0 found, 1 failed" prime store/bf16/d64/g1/page16/f32
  --gpus host-sm_80 --cache ${FOLDER}/broken-cache
  --templates ${FOLDER}/broken)
if(NOT output MATCHES
   "failed: store/bf16/d64/g1/page16/f32 for host-sm_80: ")
  message(FATAL_ERROR "the failing SPEC is not named")
endif()
expect(0 "^3 entries whole, 5 of the manifest, 0 problems$" verify ${cache})
expect(0 "^3 entries, [0-9]+ bytes, 0 damaged$" cache list --cache ${cache})
expect(0 "^hit +" why-miss store/e4m3_row/d64/g1/page16/f32 --gpu host-sm_80
  --cache ${cache})
expect(1 "^differs +options: asked --std=c.+17 " why-miss
  store/e4m3_row/d64/g1/page16/f32 --gpu sm_90 --cache ${cache})

# Score functions: of the SPECs that name none, and named in a manifest. A
# primed one needs no text.
file(COPY ${SCORE} DESTINATION ${FOLDER})
file(WRITE ${FOLDER}/score.txt
"extend/e4m3_row/d64/g4/page16/f32   score=relative_bias.mlir
store/e4m3_row/d64/g1/page16/f32
")
set(score 479c88ba3c54e9a26373095a00c4b6fe)
set(score_cache ${FOLDER}/score-cache)
expect(0 "^2 compiled, 0 found, 0 failed" prime ${FOLDER}/score.txt
  --gpus host-sm_80 --cache ${score_cache})
file(WRITE ${FOLDER}/two_words.txt
"extend/e4m3_row/d64/g4/page16/f32 relative_bias.mlir\n")
expect(4 "" prime ${FOLDER}/two_words.txt --gpus host-sm_80
  --cache ${score_cache})
if(NOT output MATCHES
   "two_words.txt:1: tile 'relative_bias.mlir'")
  message(FATAL_ERROR "the stray word is not named")
endif()
expect(0 "^0 compiled, 1 found, 0 failed" prime
  extend/e4m3_row/d64/g4/page16/f32 --score ${SCORE}
  --gpus host-sm_80 --cache ${score_cache})
expect(0 "^0 compiled, 1 found, 0 failed" prime
  extend/e4m3_row/d64/g4/page16/f32/score=${score}
  --gpus host-sm_80 --cache ${score_cache})
expect(1 "^0 compiled, 0 found, 1 failed" prime
  extend/e4m3_row/d96/g4/page16/f32/score=${score}
  --gpus host-sm_80 --cache ${score_cache})
if(NOT output MATCHES "text of score function ${score} is not known")
  message(FATAL_ERROR "the missing text is not named")
endif()

# What a model's layers need, from its folder: layers of two kinds share all but
# attention. A second run does the rest; a dry run prints a manifest.
file(WRITE ${FOLDER}/model/config.json [[{"model_type": "gpt_oss",
  "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 2,
  "sliding_window": 128, "torch_dtype": "bfloat16"}]])
set(model prime --model ${FOLDER}/model)
expect(0 "^store/bf16/d64/g1/page16/bf16$" ${model} --dry-run --gpus sm_80)
if(NOT output MATCHES "# model gpt_oss: 2 layers, bf16;.*\ndecode/bf16/d64/g8/page16/bf16/sinks=1/window=128\n")
  message(FATAL_ERROR "the manifest lacks a SPEC")
endif()
file(WRITE ${FOLDER}/model.txt "${output}")
set(model_cache ${FOLDER}/model-cache)
expect(0 "^1 compiled, 0 found, 0 failed" ${model} --kernels merge
  --gpus host-sm_80 --cache ${model_cache})
expect(0 "^2 compiled, 1 found, 0 failed" ${model} --kernels merge,store,gather
  --gpus host-sm_80 --cache ${model_cache})
expect(0 "^4 compiled, 3 found, 0 failed" prime ${FOLDER}/model.txt
  --gpus host-sm_80 --cache ${model_cache})
expect(0 "^}$" ${model} --list-specs --json --kv-cache-dtype e4m3_row)
if(NOT output MATCHES "\"k_format\": \"e4m3_row\"")
  message(FATAL_ERROR "the layers are not in the JSON")
endif()
expect(4 "" ${model} --dry-run --kv-cache-dtype fp4)
file(WRITE ${FOLDER}/odd/config.json "{\"model_type\": \"llama\"")
expect(2 "" prime --model ${FOLDER}/odd --dry-run)
expect(2 "" prime --model ${FOLDER}/missing --dry-run)
file(WRITE ${FOLDER}/odd/config.json
  "{\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 512}")
expect(3 "" prime --model ${FOLDER}/odd --dry-run)
expect(4 "" ${model} --gpus host-sm_80)
expect(4 "" ${model} --cache ${model_cache})
expect(4 "" prime --gpus host-sm_80 --cache ${model_cache})
foreach(shard 2/2 -1/2 1/0 1 1/2/3 a/b 0/-1)
  expect(4 "" ${model} --gpus host-sm_80 --cache ${model_cache}
    --shard=${shard})
  if(NOT output MATCHES "--shard ${shard} is no part of a whole")
    message(FATAL_ERROR "the shard is not refused by name")
  endif()
endforeach()

# Another prefix, another working folder: the same keys.
file(MAKE_DIRECTORY ${FOLDER}/moved/bin ${FOLDER}/moved/lib)
file(COPY ${KVFORGE} DESTINATION ${FOLDER}/moved/bin)
file(COPY ${JIT} DESTINATION ${FOLDER}/moved/lib)
execute_process(COMMAND ${FOLDER}/moved/bin/kvforge prime ../manifest.txt
  --gpus host-sm_80 --cache ../cache WORKING_DIRECTORY ${FOLDER}/moved
  OUTPUT_VARIABLE out RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT out MATCHES "^0 compiled, 3 found, 0 failed")
  message(FATAL_ERROR "a moved command has other keys: ${out}")
endif()
file(REMOVE_RECURSE ${FOLDER}/moved)

# The example needs exactly these.
execute_process(COMMAND ${CMAKE_COMMAND} -E env KVFORGE_CACHE_DIR=${cache}
  KVFORGE_CACHE_BYTES=0 ${EXAMPLE} RESULT_VARIABLE result OUTPUT_VARIABLE out)
message(STATUS "${out}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the example does not run from the primed folder")
endif()
expect(0 "^3 entries, [0-9]+ bytes, 0 damaged$" cache list --cache ${cache})

file(GLOB_RECURSE entries ${cache}/*.kvk)
list(GET entries 0 first)
file(READ ${first} hex HEX)
string(SUBSTRING "${hex}" 0 200 head)
file(WRITE ${first} "${head}")
expect(1 "^2 entries whole, 5 of the manifest, [23] problems$" verify ${cache})
file(REMOVE ${first})
expect(1 "^2 entries whole, 5 of the manifest, [12] problems$" verify ${cache})
expect(0 "^1 compiled, 2 found, 0 failed" ${prime})
expect(0 "^3 entries whole, 5 of the manifest, 0 problems$" verify ${cache})
expect(0 "^removed 3 entries, [0-9]+ bytes; 0 bytes are left$"
  cache trim --bytes 0 --cache ${cache})
