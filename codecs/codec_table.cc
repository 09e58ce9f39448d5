#include "codecs/codec_table.h"

#include "codecs/fp8/fp8_codec.h"
#include "codecs/identity/identity_codec.h"
#include "codecs/ladder/ladder_codec.h"
#include "codecs/nested/nested_codec.h"

namespace firn {
namespace {

constexpr PrecisionClass kEightBit[] = {PrecisionClass::k8Bit};
constexpr PrecisionClass kLadder[] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit};

constexpr float kE4m3Tolerance[] = {0.03f};
constexpr float kE5m2Tolerance[] = {0.06f};
constexpr float kNestedTolerance[] = {0.009f, 0.12f, 0.5f};

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
    {CodecId::kNestedChannel, "nested_channel", TileScope::kHead, true, kLadder, kNestedTolerance,
     nested::ChannelRunBytes, nested::ChannelMetaOffset, nested::ChannelTileTokens, nested::ValidateChannel,
     nested::SurveyChannel, nested::EncodeChannelReference, nested::DecodeChannelReference, nested::EncodeChannel,
     nested::DecodeChannel},
    {CodecId::kNestedToken, "nested_token", TileScope::kHead, true, kLadder, kNestedTolerance, nested::TokenRunBytes,
     nested::TokenMetaOffset, nested::TokenTileTokens, nested::ValidateToken, nested::SurveyToken,
     nested::EncodeTokenReference, nested::DecodeTokenReference, nested::EncodeToken, nested::DecodeToken},
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
