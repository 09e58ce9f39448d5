// What the opaque types of c_api.h are, and how failures reach firn_last_error().
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/capi/c_api.h"

struct firn_artifact {
  std::shared_ptr<const firn::Artifact> artifact;
};

namespace firn::capi {

// Keeps the reason for this thread; -1.
int Failed(const absl::Status& status);
inline int Result(const absl::Status& status) { return status.ok() ? 0 : Failed(status); }

// A new Handle of what `made` holds; null, with the reason kept, where it holds none.
template <typename Handle, typename T>
Handle* NewHandle(absl::StatusOr<T> made) {
  if (made.ok()) return new Handle{*std::move(made)};
  Failed(made.status());
  return nullptr;
}

// An artifact of one section maker's sections.
template <typename T>
firn_artifact* ArtifactOf(absl::StatusOr<T> sections) {
  if (sections.ok()) return NewHandle<firn_artifact>(Artifact::Create(*std::move(sections)));
  Failed(sections.status());
  return nullptr;
}

}  // namespace firn::capi
