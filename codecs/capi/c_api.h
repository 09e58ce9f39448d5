/* The codecs behind a plain C interface, for tools and for Python through ctypes.
 *
 * Threads: all functions are reentrant; a calibrator belongs to one thread at a time, artifacts are immutable.
 * Ownership: arrays belong to the caller and nothing here keeps them beyond the call; what a function returns is freed
 * by its own _free. Shapes: K is [head][token][channel] of one layer after RoPE, V likewise, FP32; calibrators take
 * [token][head][channel]. Errors: functions return 0, or -1 (null where they return a pointer) with the reason in
 * firn_last_error() of the same thread. Limits: those of blocks and artifacts (codecs/record.h, codecs/artifact.h).
 */
#ifndef FIRN_CODECS_CAPI_C_API_H_
#define FIRN_CODECS_CAPI_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the last call of this thread failed; valid until its next call. */
const char* firn_last_error(void);

/* --- Artifacts: model data that codings name (docs/formats/artifact.md) --- */

typedef struct firn_artifact firn_artifact;

typedef struct firn_codebook {
  uint32_t bits;        /* 2, 3 or 4. */
  const float* levels;  /* [layer][2^bits], ascending. */
  const float* decoded; /* The same; null: the levels. */
} firn_codebook;

/* Null pointers and counts of 0 are sections that the artifact does not have. */
typedef struct firn_artifact_sections {
  uint32_t layers, heads, width;
  const float* mean; /* [layer][head][channel], as are the next three; two by two. */
  const float* weight;
  const float* centre;
  const float* reach;
  const float* scales;            /* [layer][head], for FP8 and for calibrated integers. */
  const firn_codebook* codebooks; /* Ascending by bits. */
  const double* rope_frequencies; /* Radians a position, [pair]. */
  uint32_t codebook_count, rope_pairs;
  uint32_t rope_interleaved; /* Pairs are (2i, 2i + 1); otherwise (i, i + pairs). */
} firn_artifact_sections;

firn_artifact* firn_artifact_create(const firn_artifact_sections* sections);
/* All sections of artifacts of one shape in one; a section that two of them have is an error. */
firn_artifact* firn_artifact_merge(const firn_artifact* const* artifacts, uint32_t count);
firn_artifact* firn_artifact_parse(const uint8_t* bytes, uint64_t length);
/* One layer of it, for blocks of one layer. */
firn_artifact* firn_artifact_layer(const firn_artifact* artifact, uint32_t layer);
void firn_artifact_free(firn_artifact* artifact);
/* The serialized artifact; valid as long as it is. */
const uint8_t* firn_artifact_bytes(const firn_artifact* artifact, uint64_t* length);

/* --- Calibrators: what measures artifacts --- */

/* Means and balance weights of keys (codecs/calibrate.h). */
typedef struct firn_calibrator firn_calibrator;
firn_calibrator* firn_calibrator_create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width);
void firn_calibrator_free(firn_calibrator* calibrator);
/* keys: [token][kv head][channel]; queries: [token][query head][channel], or null. */
int firn_calibrator_add(firn_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* keys,
                        const float* queries);
/* Values of Balancing: by spreads, with means; MiKV's, by largest magnitudes, without. */
enum { FIRN_BALANCE_SPREAD = 0, FIRN_BALANCE_MAXIMUM = 1 };
firn_artifact* firn_calibrator_finish(const firn_calibrator* calibrator, uint32_t balancing);

/* KVQuant's codebooks of 2, 3 and 4 bits, and the ranges of key channels (codecs/nuq/nuq_calibrator.h). */
typedef struct firn_nuq_calibrator firn_nuq_calibrator;
typedef struct firn_nuq_options {
  uint32_t layers, heads, width;
  uint32_t values;     /* 0: keys, as the coding sees them (before RoPE where it takes that back); 1: values. */
  uint32_t outliers;   /* In thousandths, as the coding will have them. */
  uint32_t q_norm;     /* Decoded values get the mean and the deviation of the values. */
  uint32_t tokens_max; /* Kept of each layer; even; 0: 2,048. */
} firn_nuq_options;
firn_nuq_calibrator* firn_nuq_calibrator_create(const firn_nuq_options* options);
void firn_nuq_calibrator_free(firn_nuq_calibrator* calibrator);
/* values: [token][head][channel]; weights: squared gradients of a loss by each of them, or null. */
int firn_nuq_calibrator_add(firn_nuq_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* values,
                            const float* weights);
firn_artifact* firn_nuq_calibrator_finish(const firn_nuq_calibrator* calibrator);

/* One scale a (layer, head): the largest magnitude by `largest_code`, 448 for E4M3 (codecs/scale_calibrator.h). */
typedef struct firn_scale_calibrator firn_scale_calibrator;
firn_scale_calibrator* firn_scale_calibrator_create(uint32_t layers, uint32_t heads, uint32_t width,
                                                    float largest_code);
void firn_scale_calibrator_free(firn_scale_calibrator* calibrator);
int firn_scale_calibrator_add(firn_scale_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* values);
firn_artifact* firn_scale_calibrator_finish(const firn_scale_calibrator* calibrator);

/* --- Coding --- */

/* Values of DType, KeyMethod, Ladder and of PartCoding's flags. Codecs are the ids of CodecId. */
enum { FIRN_FP16 = 1, FIRN_BF16 = 2 };
enum { FIRN_KEYS_PER_CHANNEL = 0, FIRN_KEYS_BALANCED_ROTATED = 1, FIRN_KEYS_ROTATED = 2 };
enum { FIRN_LADDER_MIN_MAX = 0, FIRN_LADDER_GAIN = 1, FIRN_LADDER_TRELLIS = 2 };
enum {
  FIRN_ROTATED = 1,
  FIRN_CENTRED = 2,
  FIRN_BALANCED = 4,
  FIRN_PRE_ROPE = 8,
  FIRN_SYMMETRIC = 16,
  FIRN_CALIBRATED = 32
};

/* How a part is coded in place of the ladder. */
typedef struct firn_coding {
  uint32_t codec;                /* 0: the ladder. */
  uint32_t code_bits;            /* Of one code, where the codec has a choice; else 0. */
  uint32_t group;                /* Values of a scale, tokens of nuq_channel's outliers; 0: no groups. */
  uint32_t outliers;             /* In thousandths. */
  uint32_t flags;                /* FIRN_ROTATED | ... */
  const firn_artifact* artifact; /* Of one layer, or null. */
} firn_coding;

typedef struct firn_part_options {
  uint32_t bits;            /* The class: 16 (exact), 8, 4, 3 or 2. */
  uint32_t group;           /* Of the ladder; 0: its default. */
  const uint8_t* head_bits; /* [head]: classes of the ladder that differ, in place of `bits`; or null. */
  firn_coding coding;
} firn_part_options;

typedef struct firn_round_trip_options {
  uint32_t heads, tokens, k_width, v_width;
  uint32_t dtype;       /* What the values are rounded to before they are encoded. */
  uint32_t first_token; /* Position of the first of them, for rotary embeddings and attention sinks. */
  uint32_t keep_first_tokens;
  uint32_t use_fp8; /* 8 bits are E4M3. */
  uint32_t key_method;
  uint32_t ladder;              /* The nested code of rotated rows. */
  const firn_artifact* balance; /* Of one layer, for FIRN_KEYS_BALANCED_ROTATED, or null. */
  firn_part_options k, v;
  /* The share of tokens kept exact, 0 to 1, those of the highest importance: [token], finite and not negative, or null,
   * which keeps `keep_first_tokens` alone (docs/plan.md). */
  float important_fraction;
  const float* importance;
} firn_round_trip_options;

/* Exact lengths of a block: codes and all of their metadata, and tokens kept exact. Headers are not counted. */
typedef struct firn_coded_sizes {
  uint64_t k_coded_bytes, v_coded_bytes, exact_bytes;
} firn_coded_sizes;

/* Encodes one layer as a block and decodes it again into k_out and v_out, which may be k and v. */
int firn_round_trip(const firn_round_trip_options* options, const float* k, const float* v, float* k_out, float* v_out,
                    firn_coded_sizes* sizes);

#ifdef __cplusplus
}
#endif

#endif /* FIRN_CODECS_CAPI_C_API_H_ */
