from anyjax.train.step.loss_scale import LossScale


def test_it_grows_after_enough_good_steps():
    scale = LossScale.initial(8.0)
    for finite in (True, True, False, True, True, True):
        scale = scale.updated(finite, every=3)
    assert scale.scale == 8.0 and scale.good == 0


def test_it_stays_above_one():
    assert LossScale.initial(1.0).updated(False).scale == 1.0
