// The `kvforge` command: dispatch only; one file a subcommand.
#include "tools/command.h"

int main(int argc, char** argv) {
  CLI::App app(
      "kvforge: kernels for quantized KV caches, compiled at run time");
  app.require_subcommand(1);
  kvforge::Command command;
  kvforge::AddBench(app, command);
  kvforge::AddCheck(app, command);
  kvforge::AddRun(app, command);
  kvforge::AddEmit(app, command);
  kvforge::AddScore(app, command);
  kvforge::AddTile(app, command);
  kvforge::AddTune(app, command);
  kvforge::AddPrime(app, command);
  kvforge::AddVerify(app, command);
  kvforge::AddWhyMiss(app, command);
  kvforge::AddCache(app, command);
  kvforge::AddGpus(app, command);
  kvforge::AddFormats(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Prints help, or what is wrong; the library's own codes are not ours.
    return app.exit(error) == 0 ? kvforge::kExitOk : kvforge::kExitNoEngine;
  }
  return command();
}
