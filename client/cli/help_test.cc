// What --help says, of every command: every option has a unit or kind and a default, and is in a manual; and no manual
// names an option that there is not.

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "client/cli/run_firn_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

std::string Manual(const std::string& name) {
  std::ifstream in(std::string(FIRN_SOURCE_DIR) + "/docs/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string HelpOf(const std::string& command) {
  Outcome help = RunFirn(command + " --help");
  EXPECT_EQ(help.code, 0) << command << help.text;
  return help.text;
}

// "", "put", "plan", "plan check", ...
void CollectCommands(const std::string& command, std::vector<std::string>* out) {
  out->push_back(command);
  std::istringstream lines(HelpOf(command));
  bool listed = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Subcommands:") {
      listed = true;
    } else if (listed && line.size() > 2 && line.starts_with("  ") && line[2] != ' ') {
      std::string name = line.substr(2, line.find(' ', 2) - 2);
      CollectCommands(command.empty() ? name : command + " " + name, out);
    } else if (!line.starts_with("  ")) {
      listed = false;
    }
  }
}

std::vector<std::string> Commands() {
  std::vector<std::string> commands;
  CollectCommands("", &commands);
  return commands;
}

struct Option {
  std::string name, head, help;  // "--ttl", "--ttl DURATION", "Time to live, ..."
  bool takes_value() const { return head.find_first_of(" :") != std::string::npos; }
};

// An option is a line of its names and what it takes, then its text, on the same line or on those below.
std::vector<Option> OptionsOf(const std::string& command) {
  std::vector<Option> options;
  std::istringstream lines(HelpOf(command));
  static const std::regex begin("^ +((?:-[a-z],)?(--[a-z0-9-]+)(?:,--[a-z0-9-]+)*(?: [^ ]+)*?)(?:  +(.*))?$");
  bool within = false;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, begin)) {
      options.push_back({match[2], match[1], match[3]});
      within = true;
    } else if (within && line.starts_with("                ")) {
      options.back().help += line.substr(line.find_first_not_of(' '));
    } else {
      within = false;
    }
  }
  return options;
}

TEST(Help, EveryOptionSaysWhatItTakesAndWhatHoldsWithoutIt) {
  std::vector<std::string> commands = Commands();
  EXPECT_GT(commands.size(), 30u);
  EXPECT_THAT(commands, testing::Contains("plan check"));
  for (const std::string& command : commands) {
    SCOPED_TRACE("firn " + command);
    for (const Option& option : OptionsOf(command)) {
      if (option.name == "--help" || option.name == "--version") continue;
      EXPECT_FALSE(option.help.empty()) << option.head;
      if (!option.takes_value()) continue;
      // These say which blocks: one of them or --all.
      bool names_blocks = option.name == "--file" || option.name == "--key" || option.name == "--opaque";
      bool required = option.head.find("REQUIRED") != std::string::npos;
      EXPECT_TRUE(names_blocks || required || option.help.find("default:") != std::string::npos)
          << option.head << ": " << option.help;
      for (const char* kind : {"UINT", "FLOAT", "INT in"}) {
        EXPECT_THAT(option.head, testing::Not(HasSubstr(kind))) << "says no unit";
      }
    }
  }
}

TEST(Help, EveryOptionIsInAManualAndTheManualHasNoOther) {
  const std::string cli = Manual("cli.md"), manuals = cli + Manual("plan.md") + Manual("calibration.md");
  std::set<std::string> known = {"--yes"};
  for (const std::string& command : Commands()) {
    EXPECT_THAT(cli, HasSubstr(command.substr(command.rfind(' ') + 1))) << "is in no manual";
    for (const Option& option : OptionsOf(command)) {
      static const std::regex name("--[a-z0-9-]+");
      for (auto at = std::sregex_iterator(option.head.begin(), option.head.end(), name); at != std::sregex_iterator();
           ++at) {
        known.insert(at->str());
        bool named = std::regex_search(manuals, std::regex(at->str() + "(?![a-z0-9-])"));
        EXPECT_TRUE(named) << "firn " << command << ": " << at->str();
      }
    }
  }
  static const std::regex mentioned("--[a-z][a-z0-9-]*");
  for (auto at = std::sregex_iterator(cli.begin(), cli.end(), mentioned); at != std::sregex_iterator(); ++at) {
    EXPECT_TRUE(known.contains(at->str())) << "docs/cli.md names " << at->str();
  }
}

// What follows an option that may be repeated is not taken for more of its values.
TEST(Help, ARepeatableOptionTakesOneValueATime) {
  EXPECT_THAT(RunFirn("put --extra salt --extra other /no/such/file").text, HasSubstr("/no/such/file: No such file"));
  EXPECT_THAT(RunFirn("put --tier-target cold=int4 /no/such/file").text, HasSubstr("/no/such/file: No such file"));
  EXPECT_THAT(RunFirn("calibrate --bits 2.5,4 --plan-out /tmp/p --out /tmp/k /no/such/file").text,
              HasSubstr("/no/such/file: No such file"));
}

TEST(Help, SaysTheExitCodes) {
  EXPECT_THAT(HelpOf(""), HasSubstr("Exit codes: 0 done; 1 done, but"));
  EXPECT_THAT(HelpOf("plan check"), HasSubstr("exit code 0: it is, 1: it is not"));
  EXPECT_THAT(HelpOf("wait"), HasSubstr("--timeout (default: 30s)"));
}

// As from a script whose variable is not set: nothing is done as if the option had been left out.
TEST(Help, EmptyValuesAreRefused) {
  int tried = 0;
  for (const std::string& command : Commands()) {
    for (const Option& option : OptionsOf(command)) {
      if (!option.takes_value() || !option.name.starts_with("--")) continue;
      Outcome outcome = RunFirn(command + " " + option.name + " ''");
      EXPECT_THAT(outcome.text, HasSubstr(option.name + ": ")) << command;  // Not what else is missing.
      EXPECT_EQ(outcome.code, 2) << command << " " << option.name << ": " << outcome.text;
      ++tried;
    }
  }
  EXPECT_GT(tried, 50);
}

}  // namespace
}  // namespace firn
