// `kvforge score`: reads a score function and prints what a SPEC calls it.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "tools/command.h"

namespace kvforge {
namespace {

struct ScoreFlags {
  std::string file;
  bool text = false;
  bool json = false;
};

absl::StatusOr<int> Score(const ScoreFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, EngineFromFlags({}));
  ASSIGN_OR_RETURN(const std::string digest, AddScoreFile(*engine, flags.file));
  ASSIGN_OR_RETURN(const std::string text, engine->ScoreFunctionText(digest));
  if (flags.json) {
    PrintJson(nlohmann::json{{"score", digest}, {"text", text}});
  } else {
    std::printf("%sscore=%s\n", flags.text ? text.c_str() : "", digest.c_str());
  }
  return kExitOk;
}

}  // namespace

void AddScore(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ScoreFlags>();
  CLI::App* score = app.add_subcommand(
      "score", "Checks a score function and prints the SPEC key that names it");
  score
      ->add_option("file", flags->file, "MLIR file; docs/score.md has its form")
      ->required();
  score->add_flag("--text", flags->text,
                  "Print the canonical text as well, which the key digests");
  score->add_flag("--json", flags->json, "Print JSON");
  score->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = Score(*flags);
      return code.ok() ? *code : Fail(code.status(), kExitUnreadable);
    };
  });
}

}  // namespace kvforge
