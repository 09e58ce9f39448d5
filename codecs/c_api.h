/* The codecs behind a plain C interface, for tools and for Python through ctypes.
 *
 * Arrays are FP32 and belong to the caller; K is [head][token][channel] of one layer after RoPE, V likewise. Functions
 * return 0, or -1 with the reason in firn_last_error() of the same thread. Nothing here keeps memory of the caller's
 * beyond the call.
 */
#ifndef FIRN_CODECS_C_API_H_
#define FIRN_CODECS_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the last call of this thread failed; valid until its next call. */
const char* firn_last_error(void);

typedef struct firn_calibrator firn_calibrator;
typedef struct firn_artifact firn_artifact;

/* Null on failure. */
firn_calibrator* firn_calibrator_create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width);
void firn_calibrator_free(firn_calibrator* calibrator);
/* keys: [token][kv head][channel]; queries: [token][query head][channel], or null. */
int firn_calibrator_add(firn_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* keys,
                        const float* queries);
/* Null on failure. */
firn_artifact* firn_calibrator_finish(const firn_calibrator* calibrator);

firn_artifact* firn_artifact_parse(const uint8_t* bytes, uint64_t length);
void firn_artifact_free(firn_artifact* artifact);
/* The serialized artifact; valid as long as it is. */
const uint8_t* firn_artifact_bytes(const firn_artifact* artifact, uint64_t* length);
/* One layer of it, for blocks of one layer. Null on failure. */
firn_artifact* firn_artifact_layer(const firn_artifact* artifact, uint32_t layer);

/* FIRN_FP16, ... are the values of DType; classes are 8, 4 and 2 bits. */
enum { FIRN_FP16 = 1, FIRN_BF16 = 2 };
enum { FIRN_KEYS_PER_CHANNEL = 0, FIRN_KEYS_BALANCED_ROTATED = 1, FIRN_KEYS_ROTATED = 2 };
enum { FIRN_LADDER_MIN_MAX = 0, FIRN_LADDER_GAIN = 1, FIRN_LADDER_TRELLIS = 2 };

typedef struct firn_round_trip_options {
  uint32_t heads, tokens, k_width, v_width;
  uint32_t dtype; /* What the values are rounded to before they are encoded. */
  uint32_t k_bits, v_bits;
  uint32_t use_fp8; /* 8 bits are E4M3. */
  uint32_t key_method;
  uint32_t key_group, value_group; /* 0: the defaults. */
  uint32_t first_token, keep_first_tokens;
  const firn_artifact* artifact; /* Of one layer, or null. */
  uint32_t ladder;               /* The nested code of rotated rows. */
} firn_round_trip_options;

/* Encodes one layer as a block and decodes it again into k_out and v_out, which may be k and v. *coded_bytes is the
 * exact length of codes, scales and minima of coded tokens; *exact_bytes that of tokens kept exact. Headers are not
 * counted. */
int firn_round_trip(const firn_round_trip_options* options, const float* k, const float* v, float* k_out, float* v_out,
                    uint64_t* coded_bytes, uint64_t* exact_bytes);

#ifdef __cplusplus
}
#endif

#endif /* FIRN_CODECS_C_API_H_ */
