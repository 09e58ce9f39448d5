#include "codecs/types.h"

namespace firn {

uint32_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFp16:
    case DType::kBf16:
      return 2;
    case DType::kFp8E4m3:
    case DType::kFp8E5m2:
    case DType::kBytes:
      return 1;
    case DType::kFp32:
      return 4;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFp16:
      return "fp16";
    case DType::kBf16:
      return "bf16";
    case DType::kFp8E4m3:
      return "fp8_e4m3";
    case DType::kFp8E5m2:
      return "fp8_e5m2";
    case DType::kBytes:
      return "bytes";
    case DType::kFp32:
      return "fp32";
  }
  return "unknown";
}

std::string_view PrecisionClassName(PrecisionClass c) {
  switch (c) {
    case PrecisionClass::kNone:
      return "none";
    case PrecisionClass::k2Bit:
      return "int2";
    case PrecisionClass::k3Bit:
      return "int3";
    case PrecisionClass::k4Bit:
      return "int4";
    case PrecisionClass::k8Bit:
      return "int8";
    case PrecisionClass::kExact:
      return "exact";
  }
  return "unknown";
}

CodecFamily FamilyOf(CodecId codec) {
  struct Row {
    CodecId codec;
    CodecFamily family;
  };
  static constexpr Row kRows[] = {
      {CodecId::kNone, CodecFamily::kAbsent},          {CodecId::kIdentity, CodecFamily::kSource},
      {CodecId::kFp8E4m3, CodecFamily::kCodes},        {CodecId::kFp8E5m2, CodecFamily::kCodes},
      {CodecId::kNestedChannel, CodecFamily::kNested}, {CodecId::kNestedToken, CodecFamily::kNested},
      {CodecId::kNestedGain, CodecFamily::kNested},    {CodecId::kNestedTrellis, CodecFamily::kNested},
      {CodecId::kIntToken, CodecFamily::kCodes},       {CodecId::kIntChannel, CodecFamily::kCodes},
      {CodecId::kIntTensor, CodecFamily::kCodes},      {CodecId::kNuqChannel, CodecFamily::kCodes},
      {CodecId::kNuqToken, CodecFamily::kCodes},       {CodecId::kNvFp4, CodecFamily::kCodes},
      {CodecId::kMxFp4, CodecFamily::kCodes},          {CodecId::kFp8E4m3Tensor, CodecFamily::kCodes},
      {CodecId::kFp8E5m2Tensor, CodecFamily::kCodes},
  };
  for (const Row& row : kRows) {
    if (row.codec == codec) return row.family;
  }
  return CodecFamily::kUnknown;
}

}  // namespace firn
