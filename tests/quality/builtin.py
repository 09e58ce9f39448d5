"""The harness's own comparisons, measured as methods are. Their bits are what their formats say."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Builtin:
    name: str
    builtin: str  # A key of the harness's BUILTIN.
    bits: float
    family: str = "reference"
    what: str = "the harness's own quantizer, groups of 64"
    recent: int = 128
    sinks: int = 4


BUILTINS = [Builtin("builtin_kivi2", "kivi2", 2.5), Builtin("builtin_kivi4", "kivi4", 4.5)]


class BuiltinCoder:
    goes_by_attention = False

    def __init__(self, method, evaluate):
        self.method = method
        self._code = evaluate.BUILTIN[method.builtin]

    def __call__(self, *layer):
        return self._code(*layer)

    @property
    def bits_per_value(self):
        return self.method.bits
