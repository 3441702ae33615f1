// The search runs in a worker, and browsers start none from a page that was opened from disk.
// There, this class runs the worker's script in an empty frame of the page, and passes messages on.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.started = new Promise(started => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.title = "search";
        frame.onload = () => {
          frame.onload = null;
          const script = frame.contentDocument.createElement("script");
          frame.contentWindow.postMessage = data => this.say(this, data);
          script.onload = () => started(frame.contentWindow);
          script.src = new URL(address, document.baseURI);
          frame.contentDocument.body.append(script);
        };
        document.body.append(frame);
      });
    }

    say(target, data) {
      target.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      this.started.then(frame => this.say(frame, data));
    }
  };
}
