#include "daemon/gpu/kernel_jobs.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/codec_table.h"
#include "kernels/fp4.h"
#include "kernels/fp8.h"
#include "kernels/integer.h"
#include "kernels/nested.h"
#include "kernels/nuq.h"

namespace firn::gpu {
namespace {

bool Has(const PartCoding& coding, uint8_t flag) { return (coding.flags & flag) != 0; }

template <typename Job>
Job JobOf(const CodesJob& of) {
  const PartShape shape = of.header.shape.part(of.part);
  Job job;
  job.blocks = of.blocks, job.layers = shape.layers, job.heads = shape.heads, job.width = shape.width;
  job.tokens = shape.tokens - of.header.exact_tokens;
  job.values = of.values;
  job.rows = of.rows;
  job.meta_run = of.run(RunKind::kMeta);
  job.survey = of.survey;
  return job;
}

kernels::NestedJob NestedJobOf(const CodesJob& of) {
  const PartCoding& coding = of.header.CodingOf(of.part);
  auto job = JobOf<kernels::NestedJob>(of);
  job.per_channel = coding.codec == CodecId::kNestedChannel;
  job.meta = coding.meta_type;
  job.group = coding.group;
  job.rotated = Has(coding, PartCoding::kRotated);
  job.transform = of.transform.view;
  job.p2 = of.run(RunKind::kP2);
  job.p4 = of.run(RunKind::kP4);
  job.p8 = of.run(RunKind::kP8);
  job.precision = job.p8.present() && job.p4.present() ? PrecisionClass::k8Bit
                  : job.p4.present()                   ? PrecisionClass::k4Bit
                                                       : PrecisionClass::k2Bit;
  return job;
}

kernels::Fp8Job Fp8JobOf(const CodesJob& of) {
  const PartCoding& coding = of.header.CodingOf(of.part);
  auto job = JobOf<kernels::Fp8Job>(of);
  job.e5m2 = coding.codec == CodecId::kFp8E5m2 || coding.codec == CodecId::kFp8E5m2Tensor;
  job.per_layer = coding.codec == CodecId::kFp8E4m3Tensor || coding.codec == CodecId::kFp8E5m2Tensor;
  job.group = coding.group;
  job.scales = of.transform.scales;
  job.codes = of.run(RunKind::kWhole);
  return job;
}

kernels::IntegerJob IntegerJobOf(const CodesJob& of) {
  const PartCoding& coding = of.header.CodingOf(of.part);
  auto job = JobOf<kernels::IntegerJob>(of);
  job.axis = coding.codec == CodecId::kIntToken     ? kernels::ScaleAxis::kToken
             : coding.codec == CodecId::kIntChannel ? kernels::ScaleAxis::kChannel
                                                    : kernels::ScaleAxis::kTensor;
  job.bits = coding.bits;
  job.symmetric = Has(coding, PartCoding::kSymmetric);
  job.meta = coding.meta_type;
  job.group = coding.group;
  job.scales = of.transform.scales;
  job.codes = of.run(RunKind::kWhole);
  return job;
}

kernels::NuqJob NuqJobOf(const CodesJob& of) {
  const PartCoding& coding = of.header.CodingOf(of.part);
  auto job = JobOf<kernels::NuqJob>(of);
  job.per_channel = coding.codec == CodecId::kNuqChannel;
  job.bits = coding.bits;
  job.outliers = coding.outliers;
  job.group = std::max<uint32_t>(coding.group, 1);
  job.meta = coding.meta_type;
  job.levels = of.transform.levels;
  job.decoded = of.transform.decoded;
  if (job.per_channel) job.ranges = of.transform.view;
  job.codes = of.run(RunKind::kWhole);
  return job;
}

kernels::Fp4Job Fp4JobOf(const CodesJob& of) {
  auto job = JobOf<kernels::Fp4Job>(of);
  job.mx = of.header.CodingOf(of.part).codec == CodecId::kMxFp4;
  job.codes = of.run(RunKind::kWhole);
  return job;
}

template <auto kJobOf, auto kCode>
absl::Status Code(const CodesJob& of, cudaStream_t stream) {
  return kCode(kJobOf(of), stream);
}

// What kernels do of a codec: one row each.
struct KernelRow {
  CodecId codec;
  uint8_t inside;   // Flags that its kernels know.
  uint8_t outside;  // Flags of what is done to rows first.
  absl::Status (*encode)(const CodesJob& of, cudaStream_t stream);
  absl::Status (*decode)(const CodesJob& of, cudaStream_t stream);
};

constexpr uint8_t kTransforms = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
constexpr uint8_t kConditioned = kTransforms | PartCoding::kPreRope;
constexpr uint8_t kSymmetric = PartCoding::kSymmetric, kCalibrated = PartCoding::kCalibrated;
constexpr auto kEncodeNested = Code<NestedJobOf, kernels::EncodeNested>;
constexpr auto kDecodeNested = Code<NestedJobOf, kernels::DecodeNested>;
constexpr auto kEncodeFp8 = Code<Fp8JobOf, kernels::EncodeFp8>;
constexpr auto kDecodeFp8 = Code<Fp8JobOf, kernels::DecodeFp8>;
constexpr auto kEncodeInteger = Code<IntegerJobOf, kernels::EncodeIntegers>;
constexpr auto kDecodeInteger = Code<IntegerJobOf, kernels::DecodeIntegers>;
constexpr auto kEncodeNuq = Code<NuqJobOf, kernels::EncodeNuq>;
constexpr auto kDecodeNuq = Code<NuqJobOf, kernels::DecodeNuq>;
constexpr auto kEncodeFp4 = Code<Fp4JobOf, kernels::EncodeFp4>;
constexpr auto kDecodeFp4 = Code<Fp4JobOf, kernels::DecodeFp4>;

constexpr KernelRow kRows[] = {
    {CodecId::kNestedToken, kTransforms, 0, kEncodeNested, kDecodeNested},
    {CodecId::kNestedChannel, 0, 0, kEncodeNested, kDecodeNested},
    {CodecId::kFp8E4m3, kCalibrated, kConditioned, kEncodeFp8, kDecodeFp8},
    {CodecId::kFp8E5m2, kCalibrated, kConditioned, kEncodeFp8, kDecodeFp8},
    {CodecId::kFp8E4m3Tensor, 0, kConditioned, kEncodeFp8, kDecodeFp8},
    {CodecId::kFp8E5m2Tensor, 0, kConditioned, kEncodeFp8, kDecodeFp8},
    {CodecId::kIntToken, kSymmetric | kCalibrated, kConditioned, kEncodeInteger, kDecodeInteger},
    {CodecId::kIntChannel, kSymmetric, kConditioned, kEncodeInteger, kDecodeInteger},
    {CodecId::kIntTensor, kSymmetric | kCalibrated, kConditioned, kEncodeInteger, kDecodeInteger},
    {CodecId::kNuqChannel, 0, PartCoding::kPreRope, kEncodeNuq, kDecodeNuq},
    {CodecId::kNuqToken, 0, kConditioned, kEncodeNuq, kDecodeNuq},
    {CodecId::kNvFp4, 0, kConditioned, kEncodeFp4, kDecodeFp4},
    {CodecId::kMxFp4, 0, kConditioned, kEncodeFp4, kDecodeFp4},
};

const KernelRow* FindKernel(CodecId codec) {
  for (const KernelRow& row : kRows) {
    if (row.codec == codec) return &row;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckKernel(const RecordHeader& header, Part part) {
  const PartCoding& coding = header.CodingOf(part);
  const CodecRow* codec = FindCodec(coding.codec);
  if (codec == nullptr) return Unimplemented("no codec has the id {}", static_cast<int>(coding.codec));
  const KernelRow* row = FindKernel(coding.codec);
  if (row == nullptr) return Unimplemented("{} has no kernel", codec->name);
  if (header.Mixed(part)) return Unimplemented("heads that differ in precision are coded by the processor");
  if (!header.exact_map.empty()) return Unimplemented("sets of exact tokens are coded by the processor");
  if ((coding.flags & ~(row->inside | row->outside)) == 0) return absl::OkStatus();
  return Unimplemented("{} has no kernel for flags {:#x}; for {:#x}", codec->name, coding.flags,
                       row->inside | row->outside);
}

uint8_t FlagsOutside(const PartCoding& coding) {
  const KernelRow* row = FindKernel(coding.codec);
  return row == nullptr ? 0 : coding.flags & row->outside;
}

absl::Status EncodeCodes(const CodesJob& job, cudaStream_t stream) {
  FIRN_RETURN_IF_ERROR(CheckKernel(job.header, job.part));
  return FindKernel(job.header.CodingOf(job.part).codec)->encode(job, stream);
}
absl::Status DecodeCodes(const CodesJob& job, cudaStream_t stream) {
  FIRN_RETURN_IF_ERROR(CheckKernel(job.header, job.part));
  return FindKernel(job.header.CodingOf(job.part).codec)->decode(job, stream);
}

kernels::GatherJob GatherJobOf(const RecordHeader& header, Part part, uint32_t blocks, uint32_t tokens,
                               const kernels::RowsView& rows) {
  const PartShape shape = header.shape.part(part);
  kernels::GatherJob job;
  job.blocks = blocks, job.layers = shape.layers, job.heads = shape.heads, job.width = shape.width;
  job.tokens = job.block_tokens = tokens;
  job.value_bytes = DTypeBytes(header.dtype);
  job.rows = rows;
  return job;
}

}  // namespace firn::gpu
