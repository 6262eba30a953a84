"""What the browser tells about a figure, and what the page makes of it: clicks, zoom, camera, theme."""

from streamlit.testing.v1 import AppTest

from app.components.viewer import Click, clicked, read_look


def test_a_click_is_read_with_the_keys_it_has() -> None:
    assert clicked(None) is None
    assert clicked({"prompt": 0, "position": 3, "block": "h[1]", "loop": None}) == Click(0, 3, "h[1]", None)
    assert clicked({"block": "h[1]", "rule": "kl", "point": 4}) == Click(None, None, "h[1]", None, "kl", 4)


def test_a_look_is_read_with_ranges_and_eyes() -> None:
    assert read_look(None) is None
    told = read_look({"ranges": {"xaxis": [1, 2.5]}, "eyes": {"scene": {"x": 1, "y": 0, "z": 0.5}}})
    assert told is not None
    assert told.ranges == {"xaxis": (1.0, 2.5)}
    assert told.eyes == {"scene": {"x": 1.0, "y": 0.0, "z": 0.5}}


def test_a_click_selects_token_block_and_loop_of_the_run_on_screen() -> None:
    def script() -> None:
        import streamlit as st

        from analysis import study
        from app import state
        from app.components.viewer import Click

        state.select(Click(0, 3, "h[1]", 2))  # no run yet: nothing happens
        state.open_first(None)
        state.select(Click(None, 3, "h[2,3]", 0))
        assert state.selection() == (0, 3, 1, None)
        state.select(Click(0, None, "elsewhere", 2))
        assert state.selection() == (0, 3, 1, 2)
        assert state.take_click()
        assert not state.take_click()
        st.write(study.bundled_request().checkpoint)

    page = AppTest.from_function(script, default_timeout=60).run()
    assert not page.exception


def test_a_camera_goes_into_the_link_and_comes_back_while_the_picture_is_the_same() -> None:
    def script() -> None:
        import streamlit as st

        from app import looks
        from app.components.viewer import Look

        assert looks.look("space", "a") is None
        seen = Look(ranges={"xaxis": (0.0, 1.0)}, eyes={"scene": {"x": 0.0, "y": 2.0, "z": 0.0}})
        looks.keep_look("space", "a", seen)
        assert st.query_params["space.camera"] == "90,0"
        assert looks.look("space", "a") == seen
        other = looks.look("space", "b")  # another picture: its axes are others, the camera may stay
        assert other is not None
        assert not other.ranges
        assert other.eyes["scene"]["y"] > 1.0 > abs(other.eyes["scene"]["x"])
        for wrong in ("x,y", "90", "90,100", "inf,0"):
            st.query_params["space.camera"] = wrong
            assert looks.camera("space") is None

    page = AppTest.from_function(script, default_timeout=60).run()
    assert not page.exception


def test_what_a_figure_says_about_the_theme_counts_until_it_says_otherwise() -> None:
    def script() -> None:
        from app import looks

        assert not looks.dark()
        assert not looks.keep_dark(None)
        assert looks.keep_dark(True)
        assert not looks.keep_dark(True)
        assert looks.dark()

    page = AppTest.from_function(script, default_timeout=60).run()
    assert not page.exception
