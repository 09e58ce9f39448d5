"""Every method goes through the library, as precisely as its family may and at the bits that its format says.

Exits 77, which CTest takes as skipped, where NumPy is not installed. The first argument is presets.cc.
"""
import pathlib
import re
import sys
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

import firn_codecs as fc
from calibration import LayerCalibration, before_rope
from coder import Coder
from importance import most_important
from methods import METHODS, PRESETS, Ranked
from plot import svg

SEED, TOKENS, HEADS, QUERY_HEADS, WIDTH = 20240611, 256, 2, 8, 128
# Relative errors of normal values that no method of so many bits may pass.
WORST = {8: 0.03, 4: 0.13, 3: 0.25, 2: 0.52}


def relative(x, y):
    return float(np.linalg.norm(x - y) / np.linalg.norm(x))


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")
        rng = np.random.default_rng(SEED)
        cls.k, cls.v = rng.normal(size=(2, TOKENS, HEADS, WIDTH)).astype(np.float32)
        cls.q = rng.normal(size=(TOKENS, QUERY_HEADS, WIDTH)).astype(np.float32)
        cls.positions = np.arange(TOKENS)
        cls.calibrations = {0: LayerCalibration()}
        cls.calibrations[0].add(cls.q, cls.k, cls.v, cls.positions)

    def coded(self, name):
        coder = Coder(METHODS[name], self.calibrations)
        return (*coder(0, self.k, self.k, self.v, self.positions), coder.bits_per_value)

    def test_every_method_is_as_precise_as_its_bits(self):
        for name, method in METHODS.items():
            with self.subTest(name):
                k, v, bits = self.coded(name)
                for x, y, part in ((self.k, k, method.k), (self.v, v, method.v)):
                    wanted = part.bits[0] if isinstance(part.bits, tuple) else part.bits  # One layer, the first and best.
                    wanted = wanted.best if isinstance(wanted, Ranked) else wanted
                    self.assertLess(relative(x, y), WORST[wanted])
                    self.assertGreater(relative(x, y), 1e-3)
                self.assertGreater(bits, 2)
                self.assertLess(bits, 9.1)

    def test_bits_are_those_of_the_formats(self):
        for name, bits in (("int8", 8.25), ("int4", 4.5), ("kivi_4", 5), ("kivi_2", 3), ("firn_2", 2.1875),
                           ("firn_fast_4", 4.25), ("firn_k8v4", 6.1875), ("kvquant_3", 3.4903), ("kvquant3_by_token", 3.5),
                           ("kvquant2_o0", 2.0625), ("mxfp4", 4.25), ("kvmix", 4.5), ("mikv_none", 3.5),
                           ("mikv", (13 * 16 + 51 * 3.5) / 64)):  # Exact tokens are counted.
            with self.subTest(name):
                self.assertAlmostEqual(self.coded(name)[2], bits, delta=0.002)

    def test_presets_are_those_of_the_client_library(self):
        source = pathlib.Path(sys.argv[1]).read_text()
        wanted = set(re.findall(r'^    \{"([a-z0-9-]+)",', source, re.M))
        named = {re.sub(r"^(firn|firn-fast)-[842]$", r"\1", m.name.replace("_", "-")) for m in PRESETS}
        self.assertLessEqual(named, wanted)
        self.assertLessEqual(wanted, named)

    def test_important_tokens_of_each_block_are_exact(self):
        coder = Coder(METHODS["mikv"], self.calibrations)
        coder.importance = np.arange(TOKENS) % 64
        for x, y in zip((self.k, self.v), coder(0, self.k, self.k, self.v, self.positions)):
            close = np.linalg.norm(x - y, axis=(1, 2)) < 1e-3 * np.linalg.norm(x, axis=(1, 2))
            self.assertEqual(np.flatnonzero(close).tolist(), [t for t in range(TOKENS) if t % 64 >= 64 - 13])

    def test_estimated_importance_is_what_queries_look_at(self):
        k = self.k.copy()
        k[100] = 4 * self.q[-1].reshape(HEADS, -1, WIDTH).mean(1)  # Queries of both heads are near it.
        calibration = LayerCalibration()
        calibration.add(np.tile(self.q[-1], (TOKENS, 1, 1)), k, self.v, self.positions)
        coded, _ = Coder(METHODS["mikv_estimate"], {0: calibration})(0, k, k, self.v, self.positions)
        self.assertLess(relative(k[100], coded[100]), 1e-3)

    def test_layers_are_ranked_by_gradients_or_by_their_errors(self):
        calibrations = {}
        for layer, gradients in ((0, (1, 3)), (1, (2, 2)), (2, (3, 1))):
            calibrations[layer] = LayerCalibration()
            # Layers whose queries are larger look more closely: their keys matter more.
            calibrations[layer].add(self.q * (0.5, 2, 1)[layer], self.k, self.v, self.positions)
            calibrations[layer].weight_gradients.append(gradients)
        for best, worst in ((2, 0), (1, 2)):
            errors = [relative(self.k, Coder(METHODS["kvmix"], calibrations)(l, self.k, self.k, self.v, self.positions)[0])
                      for l in range(3)]
            self.assertLess(errors[best], 0.7 * errors[worst])
            for calibration in calibrations.values():
                calibration.weight_gradients.clear()
        equal = {layer: (1, 1) for layer in range(10)}
        self.assertEqual(most_important({**equal, 7: (0, 2)}, 0.3, "v"), {0, 1, 7})
        self.assertEqual(most_important(equal, 0.05, "k"), {0})

    def test_keys_before_the_rotary_embedding(self):
        half = WIDTH // 2
        angles = self.positions[:, None] * 10000.0 ** (-np.arange(half) / half)
        c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = self.k[..., :half], self.k[..., half:]
        embedded = np.concatenate([a * c - b * s, b * c + a * s], -1).astype(np.float32)
        self.assertLess(relative(self.k, before_rope(embedded, self.positions)), 1e-5)

    def test_what_is_not_calibrated_says_so(self):
        for name in ("kvquant_3", "kvmix", "mikv"):
            with self.assertRaisesRegex(RuntimeError, "nothing was calibrated"):
                Coder(METHODS[name], {})(0, self.k, self.k, self.v, self.positions)
        coder = Coder(METHODS["firn_2"], {})  # Keys per channel, over 64 tokens.
        coder(0, self.k, self.k, self.v, self.positions)
        self.assertAlmostEqual(coder.bits_per_value, (2.5 + 2.1875) / 2, delta=1e-3)

    def test_gradients_move_codebooks_to_where_they_are(self):
        # Only large values count: their levels get closer, and the others' coarser.
        gradients = [np.where(np.abs(x) > 1.5, 1, 0).astype(np.float32) for x in (self.k, self.v)]
        calibration = LayerCalibration()
        calibration.add(self.k, self.k, self.v, self.positions, gradients)
        errors = {}
        for name in ("kvquant2_post_rope", "kvquant2_unweighted"):
            k, v = Coder(METHODS[name], {0: calibration})(0, self.k, self.k, self.v, self.positions)
            large = np.abs(self.v) > 1.5
            errors[name] = np.linalg.norm((self.v - v)[large]), np.linalg.norm((self.v - v)[~large])
        self.assertLess(errors["kvquant2_post_rope"][0], 0.8 * errors["kvquant2_unweighted"][0])
        self.assertGreater(errors["kvquant2_post_rope"][1], errors["kvquant2_unweighted"][1])

    def test_codebooks_alone_are_fitted_to_more_windows(self):
        asked = []

        def more():
            asked.append(True)
            return [(None, 3 * self.k, 3 * self.v, self.positions, None)]
        calibration = LayerCalibration(more)
        calibration.add(self.q, self.k, self.v, self.positions)
        errors = {}
        for name in ("firn_4", "kvquant4_few", "kvquant_4"):
            k, _ = Coder(METHODS[name], {0: calibration})(0, self.k, self.k, self.v, self.positions)
            errors[name] = relative(self.k, k)
            self.assertEqual(bool(asked), name == "kvquant_4")
        self.assertGreater(errors["kvquant_4"], 1.5 * errors["kvquant4_few"])  # Its ranges are three times as wide.

    def test_the_plot_has_a_point_for_each_method(self):
        drawn = svg({"firn": [(2.2, 1e-3, 9e-4, 2e-3, "firn_2", True)], "KIVI": [(3, 1e-2, 9e-3, 2e-2, "kivi_2", True)]})
        self.assertIn("firn_2: 2.200 bits, 0.001", drawn)
        self.assertEqual(drawn.count("<title>"), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
