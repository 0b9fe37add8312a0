"""The frames of contacts between planes and capsules, against MuJoCo's own."""

import importlib.util

import mujoco
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco_warp") is None, reason="MuJoCo Warp is not installed: pip install 'mcclt[gpu]'"
)

STEEP = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 .28" euler="{tilt} {tilt} 0"><freejoint/><geom type="capsule" size=".1" fromto="0 0 -.2 0 0 .2"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("tilt", [10, 50])  # within 30° of the normal, where MuJoCo Warp gives up; and not
def test_tangents_are_mujocos(tilt: int) -> None:
    from mcclt.envs.warp_worlds import _import_warp

    _import_warp()
    import mujoco_warp as mjw

    from mcclt.envs import warp_contacts

    model = mujoco.MjModel.from_xml_string(STEEP.format(tilt=tilt))
    data = mujoco.MjData(model)
    if tilt == 50:
        data.qpos[2] = 0.15
    mujoco.mj_forward(model, data)
    ours, worlds = mjw.put_model(model), mjw.put_data(model, data, nconmax=8, njmax=40)
    ours.callback.contactfilter = warp_contacts.align_capsules
    mjw.fwd_position(ours, worlds)
    count = int(worlds.nacon.numpy()[0])
    assert count == data.ncon > 0
    expected = data.contact.frame[:count].reshape(count, 3, 3)
    np.testing.assert_allclose(worlds.contact.frame.numpy()[:count], expected, atol=1e-5)
