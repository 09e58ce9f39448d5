#include "codecs/codec_table.h"

#include "codecs/fp4/fp4_codec.h"
#include "codecs/fp8/fp8_codec.h"
#include "codecs/identity/identity_codec.h"
#include "codecs/integer/integer_codec.h"
#include "codecs/ladder/ladder_codec.h"
#include "codecs/nested/nested_codec.h"
#include "codecs/nuq/nuq_codec.h"

namespace firn {
namespace {

constexpr PrecisionClass kEightBit[] = {PrecisionClass::k8Bit};
constexpr PrecisionClass kFourBit[] = {PrecisionClass::k4Bit};
constexpr PrecisionClass kIntegers[] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k3Bit,
                                        PrecisionClass::k2Bit};
constexpr PrecisionClass kCodebooks[] = {PrecisionClass::k4Bit, PrecisionClass::k3Bit, PrecisionClass::k2Bit};
constexpr PrecisionClass kLadder[] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit};

constexpr float kE4m3Tolerance[] = {0.03f};
constexpr float kE5m2Tolerance[] = {0.06f};
constexpr float kNestedTolerance[] = {0.009f, 0.12f, 0.5f};
// Two symmetric bits are three values; of a whole layer, little more than its largest are not zero.
constexpr float kIntegerTolerance[] = {0.01f, 0.15f, 0.3f, 0.9f};
constexpr float kIntTensorTolerance[] = {0.014f, 0.22f, 0.5f, 1.1f};
constexpr float kNuqTolerance[] = {0.2f, 0.35f, 0.7f};  // By a codebook that fits the values only roughly.
constexpr float kFp4Tolerance[] = {0.14f};

constexpr float kGainTolerance[] = {0.007f, 0.105f, 0.39f};
constexpr float kTrellisTolerance[] = {0.0095f, 0.1f, 0.33f};

constexpr CodecRow kRows[] = {
    {CodecId::kIdentity,
     "identity",
     TileScope::kHead,
     true,
     {},
     {},
     identity::RunBytes,
     identity::MetaOffset,
     identity::TileTokens,
     identity::Validate,
     identity::SurveyNothing,
     identity::Encode,
     identity::DecodeReference,
     identity::Encode,
     identity::Decode},
    {CodecId::kFp8E4m3, "fp8_e4m3", TileScope::kHead, false, kEightBit, kE4m3Tolerance, fp8::RunBytes, fp8::MetaOffset,
     fp8::TileTokens, fp8::Validate, fp8::SurveyValues, fp8::EncodeReference, fp8::DecodeReference, fp8::Encode,
     fp8::Decode},
    {CodecId::kFp8E5m2, "fp8_e5m2", TileScope::kHead, false, kEightBit, kE5m2Tolerance, fp8::RunBytes, fp8::MetaOffset,
     fp8::TileTokens, fp8::Validate, fp8::SurveyValues, fp8::EncodeReference, fp8::DecodeReference, fp8::Encode,
     fp8::Decode},
    {CodecId::kFp8E4m3Tensor, "fp8_e4m3_tensor", TileScope::kLayer, false, kEightBit, kE4m3Tolerance, fp8::RunBytes,
     fp8::MetaOffset, fp8::TileTokens, fp8::Validate, fp8::SurveyValues, fp8::EncodeReference, fp8::DecodeReference,
     fp8::Encode, fp8::Decode},
    {CodecId::kFp8E5m2Tensor, "fp8_e5m2_tensor", TileScope::kLayer, false, kEightBit, kE5m2Tolerance, fp8::RunBytes,
     fp8::MetaOffset, fp8::TileTokens, fp8::Validate, fp8::SurveyValues, fp8::EncodeReference, fp8::DecodeReference,
     fp8::Encode, fp8::Decode},
    {CodecId::kNestedChannel, "nested_channel", TileScope::kHead, true, kLadder, kNestedTolerance,
     nested::ChannelRunBytes, nested::ChannelMetaOffset, nested::ChannelTileTokens, nested::ValidateChannel,
     nested::SurveyChannel, nested::EncodeChannelReference, nested::DecodeChannelReference, nested::EncodeChannel,
     nested::DecodeChannel},
    {CodecId::kNestedToken, "nested_token", TileScope::kHead, true, kLadder, kNestedTolerance, nested::TokenRunBytes,
     nested::TokenMetaOffset, nested::TokenTileTokens, nested::ValidateToken, nested::SurveyToken,
     nested::EncodeTokenReference, nested::DecodeTokenReference, nested::EncodeToken, nested::DecodeToken},
    {CodecId::kIntToken, "int_token", TileScope::kHead, false, kIntegers, kIntegerTolerance, integer::TokenRunBytes,
     integer::TokenMetaOffset, integer::TokenTileTokens, integer::ValidateToken, integer::SurveyToken,
     integer::EncodeTokenReference, integer::DecodeTokenReference, integer::EncodeToken, integer::DecodeToken},
    {CodecId::kIntChannel, "int_channel", TileScope::kHead, false, kIntegers, kIntegerTolerance,
     integer::ChannelRunBytes, integer::ChannelMetaOffset, integer::ChannelTileTokens, integer::ValidateChannel,
     integer::SurveyChannel, integer::EncodeChannelReference, integer::DecodeChannelReference, integer::EncodeChannel,
     integer::DecodeChannel},
    {CodecId::kIntTensor, "int_tensor", TileScope::kLayer, false, kIntegers, kIntTensorTolerance,
     integer::TensorRunBytes, integer::TensorMetaOffset, integer::TensorTileTokens, integer::ValidateTensor,
     integer::SurveyTensor, integer::EncodeTensorReference, integer::DecodeTensorReference, integer::EncodeTensor,
     integer::DecodeTensor},
    {CodecId::kNuqChannel, "nuq_channel", TileScope::kHead, true, kCodebooks, kNuqTolerance, nuq::ChannelRunBytes,
     nuq::ChannelMetaOffset, nuq::ChannelTileTokens, nuq::ValidateChannel, nuq::SurveyChannel,
     nuq::EncodeChannelReference, nuq::DecodeChannelReference, nuq::EncodeChannel, nuq::DecodeChannel},
    {CodecId::kNuqToken, "nuq_token", TileScope::kLayer, false, kCodebooks, kNuqTolerance, nuq::TokenRunBytes,
     nuq::TokenMetaOffset, nuq::TokenTileTokens, nuq::ValidateToken, nuq::SurveyToken, nuq::EncodeTokenReference,
     nuq::DecodeTokenReference, nuq::EncodeToken, nuq::DecodeToken},
    {CodecId::kNvFp4, "nvfp4", TileScope::kLayer, false, kFourBit, kFp4Tolerance, fp4::NvRunBytes, fp4::NvMetaOffset,
     fp4::NvTileTokens, fp4::Validate, fp4::SurveyValues, fp4::EncodeNvReference, fp4::DecodeNvReference, fp4::EncodeNv,
     fp4::DecodeNv},
    {CodecId::kMxFp4, "mxfp4", TileScope::kHead, false, kFourBit, kFp4Tolerance, fp4::MxRunBytes, fp4::MxMetaOffset,
     fp4::MxTileTokens, fp4::Validate, fp4::SurveyValues, fp4::EncodeMxReference, fp4::DecodeMxReference, fp4::EncodeMx,
     fp4::DecodeMx},
    {CodecId::kNestedGain, "nested_gain", TileScope::kHead, true, kLadder, kGainTolerance, ladder::RunBytes,
     ladder::MetaOffset, ladder::GainTileTokens, ladder::Validate, ladder::SurveyGain, ladder::EncodeGainReference,
     ladder::DecodeGainReference, ladder::EncodeGain, ladder::DecodeGain},
    {CodecId::kNestedTrellis, "nested_trellis", TileScope::kHead, true, kLadder, kTrellisTolerance, ladder::RunBytes,
     ladder::MetaOffset, ladder::TrellisTileTokens, ladder::Validate, ladder::SurveyTrellis,
     ladder::EncodeTrellisReference, ladder::DecodeTrellisReference, ladder::EncodeTrellis, ladder::DecodeTrellis},
};

}  // namespace

const CodecRow* FindCodec(CodecId id) {
  for (const CodecRow& row : kRows) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

std::span<const CodecRow> AllCodecs() { return kRows; }

}  // namespace firn
