#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/read_file.h"
#include "base/status.h"
#include "client/cli/calibrate/calibration.h"
#include "client/cli/calibrate/head_errors.h"
#include "client/cli/calibrate/options.h"
#include "client/cli/calibrate/plan.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/artifact_output.h"
#include "client/cli/support/output.h"
#include "client/cpp/tensor/output_file.h"
#include "firnkv/plan_file.h"

namespace firn::cli {
namespace {

constexpr uint64_t kErrorsBytesMax = uint64_t{1} << 28;

// One of --bits: a budget, and the tier that it is for.
struct Budget {
  std::string tier, text;
  double bits = 0;
};

absl::StatusOr<Budget> ParseBudget(const std::string& text) {
  Budget out;
  size_t equals = text.rfind('=');
  if (equals != std::string::npos) out.tier = text.substr(0, equals);
  out.text = text.substr(equals == std::string::npos ? 0 : equals + 1);
  auto [end, error] = std::from_chars(out.text.data(), out.text.data() + out.text.size(), out.bits);
  if (error != std::errc() || end != out.text.data() + out.text.size() || !(out.bits > 0) || equals == 0) {
    return InvalidArgument("--bits {} is not BITS or TIER=BITS", text);
  }
  return out;
}

// "plan.toml" and "2.25": "plan-2.25.toml".
std::string Numbered(const std::string& path, const std::string& bits) {
  std::filesystem::path out(path);
  out.replace_filename(out.stem().string() + "-" + bits + out.extension().string());
  return out.string();
}

struct PlanFileOut {
  std::string path;
  std::vector<TierBits> tiers;
};

class CalibrateCommand {
 public:
  void AddTo(CLI::App* app);
  absl::StatusOr<int> Run(Context* context);

 private:
  absl::Status CheckOutputs();
  absl::Status CheckBalanceIsKept(const CalibrationSettings& settings) const;
  absl::StatusOr<std::vector<PlanFileOut>> Plans(const CalibrationResult& result, const CalibrationSettings& settings,
                                                 const std::vector<Capture>& captures);
  absl::StatusOr<HeadErrorTable> Errors(const CalibrationResult& result, const CalibrationSettings& settings);
  void Print(Context* context, const CalibrationResult& result, const std::vector<PlanFileOut>& plans) const;

  bool survey_wanted() const {
    return !errors_out_.empty() || (errors_.empty() && (!bits_.empty() || !ranking_out_.empty()));
  }

  std::vector<std::string> files_, bits_;
  std::string out_, out_values_, errors_, errors_out_, ranking_out_, plan_out_, resume_, measure_ = "relative";
  bool register_ = false;
  SettingsOptions options_;
  std::vector<Budget> budgets_;
  std::shared_ptr<const Artifact> keys_, values_;
};

void CalibrateCommand::AddTo(CLI::App* app) {
  app->add_option(
         "files", files_,
         "Captures: safetensors with LAYER.k, .v, .q, or directories of LAYER.k.npy, ... (docs/calibration.md)")
      ->required()
      ->type_name("FILE");
  app->add_option("--out,--out-keys", out_, "Write the artifact of keys to this file (default: nowhere)")
      ->type_name("FILE");
  app->add_option("--out-values", out_values_, "Write the artifact of values to this file (default: nowhere)")
      ->type_name("FILE");
  app->add_flag("--register", register_, "Hand the artifacts to the daemon, which names them by their content");
  app->add_option("--resume", resume_,
                  "Keep what is done in this file after each layer, and go on from what it has (default: one run)")
      ->type_name("FILE");
  auto* plan = app->add_option_group("Plans", "Which heads get which precision");
  plan->add_option("--bits", bits_,
                   "Budgets in bits a value, scales and minima included: 2.5 or 2.5,4, or cold=2.5,warm=4; needs "
                   "--plan-out (default: no plan)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("BITS");
  plan->add_option("--plan-out", plan_out_,
                   "Write the plan to this file; of several budgets one each, as plan-2.5.toml (default: no plan)")
      ->type_name("FILE");
  plan->add_option("--measure", measure_,
                   "The error of a head that goes into plans and rankings; attention ranks keys alone (default: " +
                       measure_ + ")")
      ->check(CLI::IsMember({"output", "relative", "attention", "gradient"}))
      ->type_name("MEASURE");
  plan->add_option("--errors", errors_,
                   "Go by the errors in this file, written as by --errors-out (default: errors are measured)")
      ->type_name("FILE");
  plan->add_option("--errors-out", errors_out_,
                   "Write the error of each head at each precision to this file, as JSON (default: nowhere)")
      ->type_name("FILE");
  plan->add_option("--ranking-out", ranking_out_,
                   "Write the importance of each layer's K and V to this file, as CSV (default: nowhere)")
      ->type_name("FILE");
  options_.AddTo(app);
}

absl::Status CalibrateCommand::CheckOutputs() {
  if (bits_.empty() != plan_out_.empty()) return InvalidArgument("--bits and --plan-out FILE go together");
  if (out_.empty() && out_values_.empty() && !register_ && errors_out_.empty() && ranking_out_.empty() &&
      plan_out_.empty()) {
    return InvalidArgument(
        "say where results go: --out FILE, --out-values FILE, --register, --plan-out FILE, --errors-out FILE or "
        "--ranking-out FILE");
  }
  if (!bits_.empty() && measure_ == "attention" && errors_.empty()) {
    return InvalidArgument("--measure attention says nothing of values: another one for --bits");
  }
  size_t named = 0;
  for (const std::string& text : bits_) {
    FIRN_ASSIGN_OR_RETURN(Budget budget, ParseBudget(text));
    named += !budget.tier.empty();
    auto same = [&](const Budget& other) { return !other.tier.empty() && other.tier == budget.tier; };
    if (std::any_of(budgets_.begin(), budgets_.end(), same)) {
      return InvalidArgument("--bits {}: tier {} has two budgets; allowed: one for each tier", fmt::join(bits_, ","),
                             budget.tier);
    }
    budgets_.push_back(std::move(budget));
  }
  if (named != 0 && named != budgets_.size()) {
    return InvalidArgument("--bits {}: either all for a tier or none", fmt::join(bits_, ","));
  }
  for (const std::string& path : {out_, out_values_, errors_out_, ranking_out_, resume_}) {
    if (!path.empty()) FIRN_RETURN_IF_ERROR(CheckOutputPath(path));
  }
  for (const Budget& budget : budgets_) {
    bool one = named != 0 || budgets_.size() == 1;
    FIRN_RETURN_IF_ERROR(CheckOutputPath(one ? plan_out_ : Numbered(plan_out_, budget.text)));
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadErrorTable> CalibrateCommand::Errors(const CalibrationResult& result,
                                                        const CalibrationSettings& settings) {
  if (!errors_.empty()) {
    FIRN_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(errors_, kErrorsBytesMax));
    return ParseErrors(errors_, text, result.layers, keys_->heads(), settings.classes);
  }
  ErrorMeasure measure = measure_ == "output"      ? ErrorMeasure::kOutput
                         : measure_ == "relative"  ? ErrorMeasure::kRelative
                         : measure_ == "attention" ? ErrorMeasure::kAttention
                                                   : ErrorMeasure::kGradient;
  return MeasuredErrors(result, settings, measure);
}

absl::StatusOr<std::vector<PlanFileOut>> CalibrateCommand::Plans(const CalibrationResult& result,
                                                                 const CalibrationSettings& settings,
                                                                 const std::vector<Capture>& captures) {
  std::vector<PlanFileOut> plans;
  if (bits_.empty() && errors_out_.empty() && ranking_out_.empty()) return plans;
  FIRN_ASSIGN_OR_RETURN(HeadErrorTable table, Errors(result, settings));
  if (!errors_out_.empty()) FIRN_RETURN_IF_ERROR(WriteOutputFile(errors_out_, {AsBytes(PrintErrors(table))}));
  if (!ranking_out_.empty()) FIRN_RETURN_IF_ERROR(WriteOutputFile(ranking_out_, {AsBytes(PrintRanking(table))}));
  if (budgets_.empty()) return plans;
  FIRN_ASSIGN_OR_RETURN(HeadCosts costs, CostsOf(captures[0], settings, *keys_));
  FIRN_ASSIGN_OR_RETURN(auto at_8_bits, LaddersAt8Bits(captures[0], settings, *keys_));
  bool by_tier = !budgets_[0].tier.empty();
  for (const Budget& budget : budgets_) {
    FIRN_ASSIGN_OR_RETURN(BitAllocation allocation, SpendBits(table, costs, budget.bits));
    if (plans.empty() || !by_tier) {
      bool one = by_tier || budgets_.size() == 1;
      plans.push_back({one ? plan_out_ : Numbered(plan_out_, budget.text), {}});
    }
    plans.back().tiers.push_back({budget.tier, std::move(allocation)});
  }
  auto digest = firnkv::Digest::FromHex(keys_->digest().Hex());
  for (PlanFileOut& plan : plans) {
    auto ladder = FinerLadder(settings, plan.tiers, at_8_bits);
    for (TierBits& tier : plan.tiers) tier.allocation.bits = ladder.has_value() ? ladder->bits : tier.allocation.bits;
    std::string toml = firnkv::PrintPlan(PlanOf(settings, plan.tiers, digest, ladder));
    // What `plan check` would refuse, of too many tiers say, is not written.
    FIRN_RETURN_IF_ERROR(firnkv::ParsePlanFile(toml, {.source = plan.path}).status());
    FIRN_RETURN_IF_ERROR(WriteOutputFile(plan.path, {AsBytes(toml)}));
  }
  return plans;
}

// A plan of balanced keys names the artifact of keys by its digest.
absl::Status CalibrateCommand::CheckBalanceIsKept(const CalibrationSettings& settings) const {
  if (!settings.keys.balance) {
    return InvalidArgument("a plan of balanced keys needs their balance: not with these --key-sections");
  }
  if (!out_.empty() || register_) return absl::OkStatus();
  return InvalidArgument(
      "--plan-out {}: the plan names the artifact of keys by its digest, and nothing keeps the artifact; add "
      "--register, --out FILE or both",
      plan_out_);
}

absl::StatusOr<int> CalibrateCommand::Run(Context* context) {
  FIRN_RETURN_IF_ERROR(CheckOutputs());
  std::vector<Capture> captures;
  bool all_have_values = true;
  for (const std::string& path : files_) {
    FIRN_ASSIGN_OR_RETURN(Capture capture, Capture::Open(path));
    all_have_values = all_have_values && capture.shape().v_width > 0;
    captures.push_back(std::move(capture));
  }
  bool values = !out_values_.empty() || (register_ && all_have_values);
  CalibrationRun run;
  FIRN_ASSIGN_OR_RETURN(run.settings, options_.Settings(captures, values, survey_wanted()));
  if (!bits_.empty() && run.settings.code != LadderOrIntegers::kIntegers &&
      run.settings.key_method == KeyMethod::kBalancedRotated) {
    FIRN_RETURN_IF_ERROR(CheckBalanceIsKept(run.settings));
  }
  run.state_path = resume_;
  Progress progress("calibrate", captures[0].layers().size(), !context->quiet, "layers");
  run.progress = [&](size_t, size_t) {
    progress.Add(1, 0);
    return true;
  };
  FIRN_ASSIGN_OR_RETURN(CalibrationResult result, Calibrate(captures, run));
  FIRN_ASSIGN_OR_RETURN(keys_, result.Keys());
  FIRN_ASSIGN_OR_RETURN(values_, result.Values());
  FIRN_ASSIGN_OR_RETURN(std::vector<PlanFileOut> plans, Plans(result, run.settings, captures));
  FIRN_RETURN_IF_ERROR(DeliverArtifact(context, *keys_, out_, register_));
  if (values_ != nullptr) FIRN_RETURN_IF_ERROR(DeliverArtifact(context, *values_, out_values_, register_));
  Print(context, result, plans);
  return kExitOk;
}

Json PlanJson(const PlanFileOut& plan) {
  Json tiers = Json::array();
  for (const TierBits& tier : plan.tiers) {
    Json one = {{"tier", tier.tier},
                {"bits", tier.allocation.bits},
                {"error", tier.allocation.error},
                {"optimal", tier.allocation.exact}};
    for (Part part : kParts) {
      Json& classes = one[part == Part::kK ? "k" : "v"] = Json::array();
      for (PrecisionClass c : tier.allocation.classes[static_cast<size_t>(part)]) {
        classes.push_back(PrecisionClassName(c));
      }
    }
    tiers.push_back(std::move(one));
  }
  return {{"path", plan.path}, {"tiers", std::move(tiers)}};
}

void CalibrateCommand::Print(Context* context, const CalibrationResult& result,
                             const std::vector<PlanFileOut>& plans) const {
  uint64_t without_queries = 0;
  for (const LayerResult& layer : result.results) without_queries += layer.captures_without_queries;
  if (context->json) {
    Json document = {{"artifact", keys_->digest().Hex()},
                     {"tokens", result.results[0].tokens},
                     {"layers", keys_->layers()},
                     {"heads", keys_->heads()},
                     {"width", keys_->width()},
                     {"bytes", keys_->serialized().size()},
                     {"layers_without_queries", without_queries},
                     {"layers_resumed", result.layers_resumed},
                     {"registered", register_}};
    if (values_ != nullptr) {
      document["value_artifact"] = values_->digest().Hex();
      document["value_bytes"] = values_->serialized().size();
    }
    for (const PlanFileOut& plan : plans) document["plans"].push_back(PlanJson(plan));
    context->Print(document);
    return;
  }
  std::printf("%s\n", keys_->digest().Hex().c_str());
  if (values_ != nullptr) std::printf("%s\n", values_->digest().Hex().c_str());
  if (context->quiet) return;
  std::fprintf(stderr, "%llu tokens, %u layers of %u KV heads of %u channels, %zu bytes%s\n",
               static_cast<unsigned long long>(result.results[0].tokens), keys_->layers(), keys_->heads(),
               keys_->width(), keys_->serialized().size(),
               without_queries > 0 ? "; without queries, keys are balanced by their own spread" : "");
  for (const PlanFileOut& plan : plans) {
    for (const TierBits& tier : plan.tiers) {
      std::fprintf(stderr, "%s%s%s: %.4f bits a value, error %.4g%s\n", plan.path.c_str(),
                   tier.tier.empty() ? "" : ", ", tier.tier.c_str(), tier.allocation.bits, tier.allocation.error,
                   tier.allocation.exact ? "" : ", not proved to be the least");
    }
  }
}

}  // namespace

void AddCalibrate(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<CalibrateCommand>();
  CLI::App* calibrate = app->add_subcommand(
      "calibrate",
      "Measures keys and values: artifacts, errors of precisions, rankings and plans for a budget of bits");
  command->AddTo(calibrate);
  calibrate->callback([command, context, code] {
    absl::StatusOr<int> done = command->Run(context);
    *code = done.ok() ? *done : context->Report(done.status());
  });
}

}  // namespace firn::cli
