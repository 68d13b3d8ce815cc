import "./display.test"
import "./timeline.test"
import "./words.test"
