// The commands of `firn`. Each function adds one or a few to the command line; the chosen one puts its exit code into
// `code`. Threads: one.
#pragma once

#include "client/cli/support/context.h"

namespace CLI {
class App;
}

namespace firn::cli {

void AddPut(CLI::App* app, Context* context, int* code);
void AddGet(CLI::App* app, Context* context, int* code);
void AddKeys(CLI::App* app, Context* context, int* code);
void AddInspect(CLI::App* app, Context* context, int* code);  // ls, stat, namespaces
void AddTiers(CLI::App* app, Context* context, int* code);    // tiers, capabilities, stats, wait, capacity
void AddCopy(CLI::App* app, Context* context, int* code);
void AddMoves(CLI::App* app, Context* context, int* code);    // demote, promote, degrade, prefetch
void AddRemoval(CLI::App* app, Context* context, int* code);  // delete, clear, flush, verify
void AddScrub(CLI::App* app, Context* context, int* code);
void AddWatch(CLI::App* app, Context* context, int* code);
void AddPlan(CLI::App* app, Context* context, int* code);  // plan show, check, set, presets, preset
void AddCalibrate(CLI::App* app, Context* context, int* code);
void AddImportScales(CLI::App* app, Context* context, int* code);
void AddArtifact(CLI::App* app, Context* context, int* code);
void AddBench(CLI::App* app, Context* context, int* code);
void AddChaos(CLI::App* app, Context* context, int* code);
void AddDemo(CLI::App* app, Context* context, int* code);

}  // namespace firn::cli
