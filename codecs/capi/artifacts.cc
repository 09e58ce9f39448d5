#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "codecs/capi/handles.h"

namespace firn {
namespace capi {
namespace {

thread_local std::string last_error;

std::vector<float> Copied(const float* values, size_t count) {
  return values == nullptr ? std::vector<float>() : std::vector<float>(values, values + count);
}

absl::StatusOr<ArtifactSections> SectionsOf(const firn_artifact_sections& given) {
  FIRN_RETURN_IF_ERROR(CheckArtifactShape(given.layers, given.heads, given.width));
  ArtifactSections s;
  s.layers = given.layers, s.heads = given.heads, s.width = given.width;
  size_t heads = size_t{s.layers} * s.heads, channels = heads * s.width;
  s.mean = Copied(given.mean, channels), s.weight = Copied(given.weight, channels);
  s.centre = Copied(given.centre, channels), s.reach = Copied(given.reach, channels);
  s.scales = Copied(given.scales, heads);
  for (uint32_t i = 0; i < given.codebook_count; ++i) {
    const firn_codebook& book = given.codebooks[i];
    if (book.bits < 2 || book.bits > 4) return InvalidArgument("a codebook of {} bits, 2 to 4", book.bits);
    size_t levels = size_t{s.layers} << book.bits;
    const float* decoded = book.decoded == nullptr ? book.levels : book.decoded;
    s.codebooks.push_back(
        {.bits = book.bits, .levels = Copied(book.levels, levels), .decoded = Copied(decoded, levels)});
  }
  if (given.rope_pairs > s.width / 2) return InvalidArgument("{} rotary pairs of {}", given.rope_pairs, s.width / 2);
  s.rope.interleaved = given.rope_interleaved != 0;
  if (given.rope_pairs > 0) {
    s.rope.frequencies.assign(given.rope_frequencies, given.rope_frequencies + given.rope_pairs);
  }
  return s;
}

template <typename T>
bool Join(const T& section, T* into) {
  if (section.empty()) return true;
  if (!into->empty()) return false;
  *into = section;
  return true;
}

absl::Status JoinSections(const ArtifactSections& more, ArtifactSections* s) {
  if (std::array{more.layers, more.heads, more.width} != std::array{s->layers, s->heads, s->width}) {
    return InvalidArgument("an artifact of {} layers, {} heads and width {} does not join one of {}, {} and {}",
                           more.layers, more.heads, more.width, s->layers, s->heads, s->width);
  }
  const std::pair<bool, const char*> joined[] = {
      {Join(more.mean, &s->mean) && Join(more.weight, &s->weight), "means and weights"},
      {Join(more.centre, &s->centre) && Join(more.reach, &s->reach), "ranges"},
      {Join(more.scales, &s->scales), "scales"},
      {Join(more.codebooks, &s->codebooks), "codebooks"},
      {Join(more.rope.frequencies, &s->rope.frequencies), "a rotary embedding"}};
  for (auto [good, what] : joined) {
    if (!good) return InvalidArgument("two artifacts have {}, one may", what);
  }
  if (!more.rope.frequencies.empty()) s->rope.interleaved = more.rope.interleaved;
  return absl::OkStatus();
}

absl::StatusOr<ArtifactSections> Merged(const firn_artifact* const* artifacts, uint32_t count) {
  if (count == 0) return InvalidArgument("no artifacts to merge");
  ArtifactSections sections = artifacts[0]->artifact->sections();
  for (uint32_t i = 1; i < count; ++i) {
    FIRN_RETURN_IF_ERROR(JoinSections(artifacts[i]->artifact->sections(), &sections));
  }
  return sections;
}

// One layer's share of values that are evenly many a layer.
void Slice(uint32_t layers, uint32_t layer, std::vector<float>* values) {
  size_t count = values->size() / layers;
  std::vector<float> slice(values->begin() + static_cast<ptrdiff_t>(layer * count),
                           values->begin() + static_cast<ptrdiff_t>((layer + 1) * count));
  *values = std::move(slice);
}

absl::StatusOr<ArtifactSections> LayerOf(const Artifact& artifact, uint32_t layer) {
  uint32_t layers = artifact.layers();
  if (layer >= layers) return InvalidArgument("layer {} of an artifact of {}", layer, layers);
  ArtifactSections s = artifact.sections();
  s.layers = 1;
  for (std::vector<float>* values : {&s.mean, &s.weight, &s.centre, &s.reach, &s.scales}) Slice(layers, layer, values);
  for (Codebook& book : s.codebooks) Slice(layers, layer, &book.levels), Slice(layers, layer, &book.decoded);
  return s;
}

}  // namespace

int Failed(const absl::Status& status) {
  last_error = Message(status);
  return -1;
}

}  // namespace capi
}  // namespace firn

namespace capi = firn::capi;

const char* firn_last_error(void) { return capi::last_error.c_str(); }

firn_artifact* firn_artifact_create(const firn_artifact_sections* sections) {
  return capi::ArtifactOf(capi::SectionsOf(*sections));
}

firn_artifact* firn_artifact_merge(const firn_artifact* const* artifacts, uint32_t count) {
  return capi::ArtifactOf(capi::Merged(artifacts, count));
}

firn_artifact* firn_artifact_parse(const uint8_t* bytes, uint64_t length) {
  return capi::NewHandle<firn_artifact>(firn::Artifact::Parse({bytes, length}));
}

firn_artifact* firn_artifact_layer(const firn_artifact* artifact, uint32_t layer) {
  return capi::ArtifactOf(capi::LayerOf(*artifact->artifact, layer));
}

void firn_artifact_free(firn_artifact* artifact) { delete artifact; }

const uint8_t* firn_artifact_bytes(const firn_artifact* artifact, uint64_t* length) {
  *length = artifact->artifact->serialized().size();
  return artifact->artifact->serialized().data();
}
