# format: rewrites the sources; format-check: says what it would change; lint: clang-tidy over every source of this build.
include(ProcessorCount)
ProcessorCount(cores)
set(sources "git ls-files '*.h' '*.cc' '*.cu' '*.cuh'")
add_custom_target(format
  COMMAND sh -c "${sources} | xargs clang-format -i"
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
add_custom_target(format-check
  COMMAND sh -c "${sources} | xargs clang-format --dry-run -Werror"
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
add_custom_target(lint
  COMMAND sh -c "git ls-files '*.cc' | xargs -n 1 -P ${cores} clang-tidy -quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-fconstexpr-steps=100000000 -p ${PROJECT_BINARY_DIR}"
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
