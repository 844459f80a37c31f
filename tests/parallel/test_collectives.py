"""Collectives in the text of programs."""

from anyjax.parallel.collectives import Traffic, collectives

TEXT = """
  %all-reduce.1 = f32[4,2]{1,0} all-reduce(%x), channel_id=1
  %t = (bf16[8]{0}, f32[]) all-reduce(%a, %b), channel_id=2
  %g = (f32[2]{0}, f32[16]{0}) all-gather-start(%p), dimensions={0}
  %h = ((f32[2]{0}, f32[1]{0}), (f32[16]{0}, f32[8]{0})) all-gather-start(%p, %q), dimensions={0}
  %s = (f32[6]{0}, f32[2]{0}) all-reduce-start(%a, %b), channel_id=3
  %c = (f32[5]{0}, f32[5]{0}, u32[], u32[]) collective-permute-start(%x)
  %d = f32[16]{0} all-gather-done(%g)
  %p = pred[3]{0} collective-permute(%x)
  %f = f8e4m3fn[10]{0} all-to-all(%x)
  ROOT %add = f32[4]{0} add(%all-reduce.1, %y)
"""


def test_kinds_and_bytes():
    """Started ones count once, with what they make."""
    assert collectives(TEXT) == {
        "all-reduce": Traffic(3, 32 + 16 + 4 + 32),
        "all-gather": Traffic(2, 64 + 64 + 32),
        "collective-permute": Traffic(2, 3 + 20),
        "all-to-all": Traffic(1, 10),
    }
